//! The rules about Rust files.

use crate::source::Source;

/// A file longer than this must be split.
pub(crate) const MAX_FILE: usize = 500;
/// Nine of ten files are not longer than this.
const MOST_FILES: usize = 350;
/// Half of the files are not longer than this.
const HALF_OF_FILES: usize = 150;
/// From `fn` to the closing brace.
pub(crate) const MAX_FUNCTION: usize = 70;
/// All crates together.
pub(crate) const MAX_EXPECTS: usize = 5;
/// All crates together; ifmatch-core has none.
pub(crate) const MAX_TARGET_CFGS: usize = 3;
/// Modules and re-exports.
pub(crate) const MAX_ROOT_NAMES: usize = 12;
/// Where the blob service listens by default.
const DEFAULT_PORT: &str = "10000";

/// What makes a `cfg` differ between targets.
const TARGET_PREDICATES: &[&str] = &["unix", "windows", "wasm"];

/// The first line of every file is a `//!` comment.
pub(crate) fn purpose(sources: &[Source]) -> Vec<String> {
    let silent = sources.iter().filter(|source| !source.has_purpose);
    silent.map(|source| format!("{}: the first line does not say what the file is for (//!)", source.path)).collect()
}

/// No file is long, and most are short.
pub(crate) fn file_length(sources: &[Source]) -> Vec<String> {
    let mut lengths: Vec<usize> = sources.iter().map(|source| source.lines).collect();
    lengths.sort_unstable();
    let share = |percent: usize| lengths.get(lengths.len() * percent / 100).copied().unwrap_or_default();
    let (half, most) = (share(50), share(90));
    println!("lines of {} files: median {half}, 90 % {most}, longest {}", lengths.len(), share(99));
    let long = sources.iter().filter(|source| source.lines > MAX_FILE);
    let mut violations: Vec<String> =
        long.map(|source| format!("{}: {} lines, at most {MAX_FILE}", source.path, source.lines)).collect();
    if half > HALF_OF_FILES {
        violations.push(format!("the median file has {half} lines, at most {HALF_OF_FILES}"));
    }
    if most > MOST_FILES {
        violations.push(format!("one file of ten has {most} lines or more, at most {MOST_FILES}"));
    }
    violations
}

/// No function is long.
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

/// Nothing is left to be done later, printed for debugging, or switched off.
pub(crate) fn unfinished(sources: &[Source]) -> Vec<String> {
    anywhere(sources, &[&["todo", "!"], &["unimplemented", "!"], &["dbg", "!"], &["#", "[", "ignore"]])
}

/// No `unwrap` outside tests.
pub(crate) fn unwraps(sources: &[Source]) -> Vec<String> {
    let of = |source| Source::outside_tests(source, &[".", "unwrap", "("]).map(|place| format!("{place}: unwrap"));
    sources.iter().flat_map(of).collect()
}

/// Few `expect`s outside tests. That each has its reason is clippy's business (`expect_used` and
/// `allow_attributes_without_reason`).
pub(crate) fn expects(sources: &[Source]) -> Vec<String> {
    let places: Vec<String> = sources.iter().flat_map(|source| source.outside_tests(&[".", "expect", "("])).collect();
    if places.len() <= MAX_EXPECTS {
        Vec::new()
    } else {
        places.iter().map(|place| format!("{place}: expect")).collect()
    }
}

/// Few conditions on the target, and none in ifmatch-core.
pub(crate) fn target_cfgs(sources: &[Source]) -> Vec<String> {
    let sites: Vec<String> =
        sources.iter().flat_map(|source| target_cfg_tokens(source).map(|at| source.place(at))).collect();
    let few = sites.len() <= MAX_TARGET_CFGS;
    let wrong = sites.iter().filter(|site| !few || site.starts_with("crates/ifmatch-core/"));
    wrong.map(|site| format!("{site}: a condition on the target")).collect()
}

/// No condition on the target within a function: twin modules instead.
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

/// A crate's root has few names, each spelled out.
pub(crate) fn root_names(sources: &[Source]) -> Vec<String> {
    let roots = sources.iter().filter(|source| source.path.ends_with("lib.rs"));
    let wrong =
        roots.filter(|root| root.root_names.len() > MAX_ROOT_NAMES || root.root_names.iter().any(|name| name == "*"));
    wrong.map(|root| format!("{}: {} names: {:?}", root.path, root.root_names.len(), root.root_names)).collect()
}

/// The default port is a number in one place of the gateway.
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

/// The tokens `cfg` and `cfg_attr` whose condition depends on the target.
fn target_cfg_tokens(source: &Source) -> impl Iterator<Item = usize> {
    let depends = |text: &str| text.starts_with("target_") || TARGET_PREDICATES.contains(&text);
    let openings = [(&["cfg", "("][..], 1), (&["cfg", "!", "("][..], 2), (&["cfg_attr", "("][..], 1)];
    openings
        .into_iter()
        .flat_map(|(pattern, open)| source.positions(pattern).map(move |at| (at, at + open)))
        .filter(move |(_, open)| source.group(*open).iter().any(|token| depends(&token.text)))
        .map(|(at, _)| at)
}
