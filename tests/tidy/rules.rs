//! Rules for Rust files.

use crate::source::Source;

/// Maximum number of lines of a file.
pub(crate) const MAX_FILE: usize = 500;
/// Maximum number of lines of a function, from `fn` to the closing brace.
pub(crate) const MAX_FUNCTION: usize = 70;
/// Default port of the blob service.
const DEFAULT_PORT: &str = "10000";

/// Predicates that differ between targets.
const TARGET_PREDICATES: &[&str] = &["unix", "windows", "wasm"];

/// The first line of every file is a `//!` comment.
pub(crate) fn purpose(sources: &[Source]) -> Vec<String> {
    let silent = sources.iter().filter(|source| !source.has_purpose);
    silent.map(|source| format!("{}: the first line must state the file's purpose (//!)", source.path)).collect()
}

/// Files are short.
pub(crate) fn file_length(sources: &[Source]) -> Vec<String> {
    let long = sources.iter().filter(|source| source.lines > MAX_FILE);
    long.map(|source| format!("{}: {} lines, at most {MAX_FILE}", source.path, source.lines)).collect()
}

/// Functions are short.
pub(crate) fn function_length(sources: &[Source]) -> Vec<String> {
    let of = |source: &Source| {
        let long = source.functions.iter().filter(|function| function.lines.clone().count() > MAX_FUNCTION);
        long.map(|function| {
            let (start, length) = (function.lines.start(), function.lines.clone().count());
            format!("{}:{start}: `{}` has {length} lines, at most {MAX_FUNCTION}", source.path, function.name)
        })
        .collect::<Vec<_>>()
    };
    sources.iter().flat_map(of).collect()
}

/// The word `unsafe` does not occur.
pub(crate) fn unsafe_code(sources: &[Source]) -> Vec<String> {
    anywhere(sources, &[&["unsafe"]])
}

/// There are no unfinished marks, debug output or ignored tests.
pub(crate) fn unfinished(sources: &[Source]) -> Vec<String> {
    anywhere(sources, &[&["todo", "!"], &["unimplemented", "!"], &["dbg", "!"], &["#", "[", "ignore"]])
}

/// No `unwrap` outside tests.
pub(crate) fn unwraps(sources: &[Source]) -> Vec<String> {
    let of = |source| Source::outside_tests(source, &[".", "unwrap", "("]).map(|place| format!("{place}: unwrap"));
    sources.iter().flat_map(of).collect()
}

/// ifmatch-core is the same on every target.
pub(crate) fn target_cfgs_in_core(sources: &[Source]) -> Vec<String> {
    let core = sources.iter().filter(|source| source.path.starts_with("crates/ifmatch-core/"));
    let places = core.flat_map(|source| target_cfg_tokens(source).map(|at| source.place(at)));
    places.map(|place| format!("{place}: a condition on the target")).collect()
}

/// There are no conditions on the target within functions: use twin modules.
pub(crate) fn target_cfgs_in_functions(sources: &[Source]) -> Vec<String> {
    let of = |source: &Source| {
        let inside = |&at: &usize| {
            let line = source.tokens[at].line;
            source.functions.iter().any(|function| function.lines.contains(&line))
        };
        target_cfg_tokens(source).filter(inside).map(|at| source.place(at)).collect::<Vec<_>>()
    };
    let places = sources.iter().flat_map(of);
    places.map(|place| format!("{place}: a condition on the target inside a function")).collect()
}

/// A crate's root re-exports each name explicitly.
pub(crate) fn root_globs(sources: &[Source]) -> Vec<String> {
    let roots = sources.iter().filter(|source| source.path.ends_with("lib.rs"));
    let globs = roots.filter(|root| root.root_names.iter().any(|name| name == "*"));
    globs.map(|root| format!("{}: a glob re-export", root.path)).collect()
}

/// The default port is stated once in the gateway.
pub(crate) fn default_port(sources: &[Source]) -> Vec<String> {
    let gateway = sources.iter().filter(|source| source.path.starts_with("crates/ifmatch-gateway/src/"));
    let spellings = [DEFAULT_PORT, "10_000", "10000_u16", "10_000_u16"];
    let places: Vec<String> = gateway
        .flat_map(|source| spellings.iter().flat_map(|spelling| source.outside_tests(std::slice::from_ref(spelling))))
        .collect();
    if places.len() == 1 { Vec::new() } else { vec![format!("the default port is stated at {places:?}")] }
}

fn anywhere(sources: &[Source], patterns: &[&[&str]]) -> Vec<String> {
    let of = |source: &Source| {
        let each = patterns.iter();
        each.flat_map(|pattern| source.anywhere(pattern).map(|place| format!("{place}: {}", pattern.concat())))
            .collect::<Vec<_>>()
    };
    sources.iter().flat_map(of).collect()
}

/// Returns the tokens `cfg` and `cfg_attr` with a condition on the target.
fn target_cfg_tokens(source: &Source) -> impl Iterator<Item = usize> {
    let depends = |text: &str| text.starts_with("target_") || TARGET_PREDICATES.contains(&text);
    let openings = [(&["cfg", "("][..], 1), (&["cfg", "!", "("][..], 2), (&["cfg_attr", "("][..], 1)];
    openings
        .into_iter()
        .flat_map(|(pattern, open)| source.positions(pattern).map(move |at| (at, at + open)))
        .filter(move |(_, open)| source.group(*open).iter().any(|token| depends(&token.text)))
        .map(|(at, _)| at)
}
