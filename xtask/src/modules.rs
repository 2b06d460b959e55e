//! Checks that the modules of a crate don't use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Crates whose top-level modules are in cycles, and these modules. This list may only become shorter: every other crate has none.
const CYCLES: &[(&str, &str)] = &[
    ("ifmatch", "builder layer lease memory read shared write"),
    ("ifmatch-blob", "body dialect documents store waits"),
    (
        "ifmatch-blob-indexed",
        "append body_files draft payload snapshot swap write",
    ),
    (
        "ifmatch-cache",
        "builder fetch inner_service layer lookup metrics respond state store",
    ),
    (
        "ifmatch-gateway-config",
        "access arguments config_error pem proxy proxy_settings server settings sources",
    ),
    (
        "ifmatch-http-server",
        "connection handler http2 request_body slots",
    ),
    ("ifmatch-postgres", "connection error settings tls"),
    ("ifmatch-proxy", "forward route upstream"),
    ("ifmatch-register", "ambiguous combiner driver metrics"),
];

/// For each module, the modules that it uses.
type ModuleUses = BTreeMap<String, BTreeSet<String>>;

/// Returns what differs from [`CYCLES`] in the crates of the workspace.
pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let uses = uses_in(&entry.path().join("src"))?;
        let cyclic = in_cycles(&uses);
        let allowed = CYCLES
            .iter()
            .find(|(package, _)| *package == name)
            .map_or("", |(_, modules)| modules);
        let allowed: BTreeSet<&str> = allowed.split_whitespace().collect();
        let new: Vec<_> = cyclic.difference(&allowed).copied().collect();
        if !new.is_empty() {
            found.push(format!(
                "{name}: these modules use each other in a circle: {}",
                new.join(" ")
            ));
        }
        let gone: Vec<_> = allowed.difference(&cyclic).copied().collect();
        if !gone.is_empty() {
            found.push(format!(
                "{name}: remove from the list in modules.rs: {}",
                gone.join(" ")
            ));
        }
    }
    Ok(found)
}

/// Returns the modules that reach themselves.
fn in_cycles(uses: &ModuleUses) -> BTreeSet<&str> {
    let reaches_itself = |module: &&str| {
        let mut open: Vec<&str> = vec![module];
        let mut seen = BTreeSet::new();
        while let Some(next) = open.pop() {
            for used in uses.get(next).into_iter().flatten() {
                if used == module {
                    return true;
                }
                if seen.insert(used) {
                    open.push(used);
                }
            }
        }
        false
    };
    uses.keys()
        .map(String::as_str)
        .filter(reaches_itself)
        .collect()
}

/// Reads which top-level modules use which others, outside of tests.
fn uses_in(source: &Path) -> Result<ModuleUses> {
    let files = files_in(source)?;
    let module_of = |file: &Path| {
        let below = file.strip_prefix(source).unwrap_or(file).with_extension("");
        let mut path: Vec<_> = below
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        path.pop_if(|last| last == "mod");
        path
    };
    let is_module = |path: &Vec<String>| !matches!(path[0].as_str(), "lib" | "main" | "bin");
    let paths: Vec<_> = files.iter().map(|file| module_of(file)).collect();
    let top: BTreeSet<_> = paths
        .iter()
        .filter(|path| is_module(path))
        .map(|path| path[0].clone())
        .collect();
    let mut uses = ModuleUses::new();
    for (file, path) in files.iter().zip(&paths).filter(|(_, path)| is_module(path)) {
        let named = named_in(&fs::read_to_string(file)?, path.len());
        let others = named
            .into_iter()
            .filter(|name| *name != path[0] && top.contains(name));
        uses.entry(path[0].clone()).or_default().extend(others);
    }
    Ok(uses)
}

/// Returns the files of a crate, without its tests.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            files.extend(files_in(&path)?);
        } else if path.extension().is_some_and(|it| it == "rs")
            && !name.ends_with("tests")
            && name != "test_util"
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// Returns what the code of a module at this depth names at the root of its crate, by `crate::` or `super::`.
fn named_in(text: &str, depth: usize) -> BTreeSet<String> {
    let code: String = text
        .split("#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default()
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n")
        .collect();
    let to_root = ["crate::".to_owned(), "super::".repeat(depth)];
    let mut named = BTreeSet::new();
    for prefix in &to_root {
        for (at, _) in code.match_indices(prefix) {
            // A longer name or path ends here, such as `my_crate::` or `$crate::`.
            if code[..at]
                .ends_with(|before: char| before.is_alphanumeric() || "_:$".contains(before))
            {
                continue;
            }
            named.extend(heads(&code[at + prefix.len()..]));
        }
    }
    named
}

/// Returns the first names of the path, or of the paths in braces, at the beginning of this text.
fn heads(text: &str) -> Vec<String> {
    let name = |text: &str| {
        text.trim_start()
            .chars()
            .take_while(|it| it.is_alphanumeric() || *it == '_')
            .collect()
    };
    let Some(group) = text.strip_prefix('{') else {
        return vec![name(text)];
    };
    let mut heads = vec![name(group)];
    let mut depth = 0_usize;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.push(name(&group[at + 1..])),
            _ => {}
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_paths_are_found() {
        let text = "use crate::{a, b::{c, d}, e as f};\nuse super::super::g::H;\nuse super::i;\nuse my_crate::j;\n\
                    // use crate::k;\nfn l() { crate::m::n() }\n#[cfg(test)]\nmod tests { use crate::o; }\n";
        let expected = ["a", "b", "e", "g", "m"].map(str::to_owned);
        assert_eq!(named_in(text, 2), BTreeSet::from(expected));
    }

    #[test]
    fn a_module_is_in_a_cycle_if_it_reaches_itself() {
        let uses = |pairs: &[(&str, &[&str])]| -> ModuleUses {
            pairs
                .iter()
                .map(|(name, used)| ((*name).into(), used.iter().map(|it| (*it).into()).collect()))
                .collect()
        };
        let circle = uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &["a"])]);
        assert_eq!(in_cycles(&circle), BTreeSet::from(["b", "c"]));
        assert!(in_cycles(&uses(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    }
}
