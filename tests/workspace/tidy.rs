//! Rules of the repository that no lint of rustc, clippy or cargo-deny knows. Each returns its violations in the tracked files.

use std::path::Path;
use std::process::Command;

/// A tracked file.
struct File {
    /// Relative to the root, with slashes.
    path: String,
    /// Empty if the file isn't text, such as a picture.
    text: String,
}

/// Returns all tracked files. Links are left out: their targets are tracked as well.
fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached"])
        .output()
        .unwrap();
    let paths = String::from_utf8(listed.stdout).unwrap();
    let read = |path: &str| {
        let full = Some(root.join(path)).filter(|full| !full.is_symlink())?;
        let text = String::from_utf8(std::fs::read(full).ok()?).unwrap_or_default();
        Some(File {
            path: path.to_owned(),
            text,
        })
    };
    let files: Vec<File> = paths.split_terminator('\0').filter_map(read).collect();
    assert!(
        files.len() > 50,
        "git lists only {} files: not the repository's root?",
        files.len()
    );
    files
}

fn with_ending<'a>(files: &'a [File], ending: &str) -> impl Iterator<Item = &'a File> {
    files.iter().filter(move |file| file.path.ends_with(ending))
}

/// Fails with all violations, one a line, and unless the rule finds `wrong` in this text under this name.
#[track_caller]
fn check(rule: fn(&[File]) -> Vec<String>, wrong: &[(&str, &str)]) {
    for (path, text) in wrong {
        let file = File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        assert_eq!(
            rule(&[file]).len(),
            1,
            "the rule does not find its own example: {path}: {text}"
        );
    }
    let violations = rule(&files());
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Returns the lines of Rust files for which `is_wrong` returns `true`.
fn rust_lines(files: &[File], why: &str, is_wrong: fn(&str) -> bool) -> Vec<String> {
    let of = |file: &File| {
        let numbered = file
            .text
            .lines()
            .enumerate()
            .filter(|(_, line)| is_wrong(line));
        numbered
            .map(|(at, line)| format!("{}:{}: {why}: {}", file.path, at + 1, line.trim()))
            .collect::<Vec<_>>()
    };
    with_ending(files, ".rs")
        .filter(|file| file.path != "tests/workspace/tidy.rs")
        .flat_map(of)
        .collect()
}

#[test]
fn every_file_states_its_purpose() {
    let rule = |files: &[File]| {
        let silent = with_ending(files, ".rs").filter(|file| !file.text.starts_with("//! "));
        silent
            .map(|file| {
                format!(
                    "{}: the first line must state the file's purpose (//!)",
                    file.path
                )
            })
            .collect()
    };
    check(rule, &[("a.rs", "use std::fs;\n")]);
}

#[test]
fn nothing_is_unfinished_or_ignored() {
    let rule = |files: &[File]| {
        rust_lines(files, "unfinished", |line| {
            ["TODO", "FIXME", "XXX", "#[ignore"]
                .iter()
                .any(|mark| line.contains(mark))
        })
    };
    check(
        rule,
        &[("a.rs", "    // TODO: later"), ("a.rs", "#[ignore]")],
    );
}

/// Twin modules depend on the target, and their callers don't. rustfmt indents all but the items of a file.
#[test]
fn only_whole_modules_depend_on_the_target() {
    let rule = |files: &[File]| {
        rust_lines(
            files,
            "a condition on the target within an item: use twin modules",
            |line| {
                let is_condition = ["cfg(", "cfg!(", "cfg_attr("]
                    .iter()
                    .any(|form| line.contains(form));
                let is_of_target = ["target_", "unix", "windows"]
                    .iter()
                    .any(|word| line.contains(word));
                line.starts_with(' ')
                    && !line.trim_start().starts_with("//")
                    && is_condition
                    && is_of_target
            },
        )
    };
    check(
        rule,
        &[
            ("a.rs", "    #[cfg(target_family = \"wasm\")]"),
            ("a.rs", "    if cfg!(unix) {"),
        ],
    );
}

#[test]
fn every_package_inherits_the_lints() {
    let rule = |files: &[File]| {
        let packages = with_ending(files, "Cargo.toml").filter(|file| {
            ["crates/", "examples/Cargo", "tests/", "xtask/"]
                .iter()
                .any(|folder| file.path.starts_with(folder))
        });
        let own = packages.filter(|file| !file.text.contains("[lints]\nworkspace = true"));
        own.map(|file| format!("{}: does not inherit the workspace's lints", file.path))
            .collect()
    };
    check(rule, &[("crates/x/Cargo.toml", "[package]\n")]);
}

/// The user's tools decide which registry they ask.
#[test]
fn lock_files_name_no_host() {
    let rule = |files: &[File]| {
        let npm = with_ending(files, "package-lock.json")
            .filter(|file| file.text.contains("\"resolved\""));
        let config = with_ending(files, ".npmrc").chain(with_ending(files, ".cargo/config.toml"));
        let redirected =
            config.filter(|file| file.text.contains("registry") || file.text.contains("[source"));
        let is_foreign = |line: &str| {
            line.starts_with("source = ") && !line.contains("github.com/rust-lang/crates.io-index")
        };
        let foreign =
            with_ending(files, "Cargo.lock").filter(move |file| file.text.lines().any(is_foreign));
        npm.chain(redirected)
            .chain(foreign)
            .map(|file| format!("{}: names a registry", file.path))
            .collect()
    };
    check(
        rule,
        &[
            ("Cargo.lock", "source = \"git+https://example.org\""),
            ("a/package-lock.json", "{\"resolved\": \"x\"}"),
            (".npmrc", "registry=x"),
        ],
    );
}

/// The site's step also checks the anchors of the links between its pages.
#[test]
fn every_link_leads_to_a_file() {
    let rule = |files: &[File]| {
        let exists = |path: &str| {
            files
                .iter()
                .any(|file| file.path == path || file.path.starts_with(&format!("{path}/")))
        };
        let of = |page: &File| {
            let targets = page
                .text
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            let local =
                targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '@']));
            let files = local
                .filter(|target| !target.starts_with("mailto:"))
                .filter_map(|target| target.split('#').next());
            let broken =
                files.filter(|link| !resolved(&page.path, link).is_some_and(|path| exists(&path)));
            broken
                .map(|link| format!("{}: the link to {link} is broken", page.path))
                .collect::<Vec<_>>()
        };
        with_ending(files, ".md").flat_map(of).collect()
    };
    check(
        rule,
        &[
            ("README.md", "[a](docs/none.md)"),
            ("README.md", "[a](../outside.md)"),
        ],
    );
}

/// Returns the path of a link's target, or `None` outside the repository.
fn resolved(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Node's tests run the Workers; only their text in the npm package's README is compared here.
#[test]
fn every_example_of_the_npm_package_is_a_tested_worker() {
    const PACKAGE: &str = "wasm/js/package/README.md";
    const WORKERS: &str = "wasm/js/tests/workers/";
    let rule = |files: &[File]| {
        let examples = with_ending(files, PACKAGE)
            .flat_map(|page| page.text.split("```js\n").skip(1))
            .filter_map(|rest| Some(rest.split_once("```")?.0));
        let is_tested = |example: &&str| {
            files
                .iter()
                .any(|file| file.path.starts_with(WORKERS) && file.text == **example)
        };
        examples
            .filter(|example| !is_tested(example))
            .map(|example| format!("{PACKAGE}: no file in {WORKERS} is this example:\n{example}"))
            .collect()
    };
    check(rule, &[(PACKAGE, "```js\nexport default {};\n```\n")]);
}

#[test]
fn every_page_is_in_the_contents_of_the_site() {
    let rule = |files: &[File]| {
        let contents = with_ending(files, "docs/SUMMARY.md")
            .map(|file| &*file.text)
            .collect::<String>();
        let pages = with_ending(files, ".md").filter_map(|file| file.path.strip_prefix("docs/"));
        let missing =
            pages.filter(|page| *page != "SUMMARY.md" && !contents.contains(&format!("]({page})")));
        missing
            .map(|page| format!("docs/SUMMARY.md does not link to {page}"))
            .collect()
    };
    check(rule, &[("docs/a.md", "")]);
}

#[test]
fn every_metric_in_the_monitoring_exists() {
    fn metrics(text: &str) -> impl Iterator<Item = &str> {
        let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        words.filter(|word| word.starts_with("ifmatch_"))
    }
    let rule = |files: &[File]| {
        let sources = with_ending(files, ".rs").filter(|file| file.path.contains("/src/"));
        let known: Vec<&str> = sources.flat_map(|file| metrics(&file.text)).collect();
        let monitoring = files
            .iter()
            .filter(|file| file.path.starts_with("packaging/monitoring/"));
        let of = |file: &File| {
            let unknown = metrics(&file.text).filter(|name| {
                let base = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| name.strip_suffix(suffix));
                !known.contains(name) && !base.is_some_and(|base| known.contains(&base))
            });
            unknown
                .map(|name| format!("{}: there is no metric {name}", file.path))
                .collect::<Vec<_>>()
        };
        monitoring.flat_map(of).collect()
    };
    check(
        rule,
        &[(
            "packaging/monitoring/alerts.yml",
            "expr: ifmatch_none_total > 1",
        )],
    );
}

/// A problem's name follows its status, as in `Problem::new(StatusCode::CONFLICT, "container-exists")`.
#[test]
fn every_problem_is_documented() {
    let rule = |files: &[File]| {
        let page = with_ending(files, "docs/reference/errors.md")
            .map(|file| &*file.text)
            .collect::<String>();
        let sources = with_ending(files, ".rs").filter(|file| file.path.contains("/src/"));
        let lines = sources
            .flat_map(|file| file.text.lines())
            .filter(|line| !line.trim_start().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        let names = code.split("StatusCode::").skip(1).filter_map(|rest| {
            let (_, literal) = rest
                .split_once(',')
                .filter(|(status, _)| status.bytes().all(|byte| byte != b' '))?;
            literal.trim_start().strip_prefix('"')?.split('"').next()
        });
        let is_kebab = |name: &&str| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        // Reasons of decisions, which aren't problems.
        let problems = names
            .filter(is_kebab)
            .filter(|name| *name != "not-modified");
        let missing = problems.filter(|name| !page.contains(&format!("`{name}`")));
        missing
            .map(|name| format!("docs/reference/errors.md does not explain {name}"))
            .collect()
    };
    check(
        rule,
        &[(
            "crates/x/src/a.rs",
            "Problem::new(StatusCode::CONFLICT, \"a-b\")",
        )],
    );
}
