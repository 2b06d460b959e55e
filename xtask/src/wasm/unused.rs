//! Takes out of a Worker's bindings what libraries offer to JavaScript and nobody asks for: their classes, and with them
//! the functions of WebAssembly that only those call.

use std::collections::BTreeSet;

/// The script without the classes that it neither uses itself nor has for others under a name in `wanted`, and without
/// what is there to be read by people.
pub(super) fn used(script: &str, wanted: &[&str]) -> String {
    let classes = script.lines().filter_map(class).filter(|class| !wanted.contains(class));
    // It names itself, and twice in the line about its end.
    let unused: BTreeSet<&str> =
        classes.filter(|class| words(script).filter(|word| word == class).count() == 3).collect();
    let mut kept = String::new();
    let mut end = None;
    for line in script.lines() {
        if end.is_none() && class(line).is_some_and(|class| unused.contains(class)) {
            end = Some("}");
        } else if end.is_none() && registry(line).is_some_and(|class| unused.contains(class)) {
            end = Some("});");
        } else if end.is_some() {
            end = end.filter(|end| line != *end);
        } else if !ending(line).is_some_and(|class| unused.contains(class)) && !is_for_people(line) {
            kept.push_str(line.trim_start());
            kept.push('\n');
        }
    }
    kept
}

/// The names of what a script takes from the module.
pub(super) fn taken(script: &str) -> BTreeSet<&str> {
    script.split("wasm.").skip(1).filter_map(|rest| words(rest).next()).collect()
}

/// The class that begins in a line.
fn class(line: &str) -> Option<&str> {
    line.strip_prefix("export ").unwrap_or(line).strip_prefix("class ")?.strip_suffix(" {")
}

/// The class whose objects are told when they are forgotten, by what begins in a line.
fn registry(line: &str) -> Option<&str> {
    words(line.strip_prefix("const ")?).next()?.strip_suffix("Finalization")
}

/// The class that a line about the end of its objects is for.
fn ending(line: &str) -> Option<&str> {
    words(line.strip_prefix("if (Symbol.dispose) ")?).next()
}

/// Whether a line is empty or a comment.
fn is_for_people(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || ["//", "/**", "* ", "*/"].iter().any(|comment| line.starts_with(comment))
}

/// The names in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_alphanumeric() && char != '_' && char != '$').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
export class Unused {
    constructor() {
        wasm.unused_new();
    }
}
if (Symbol.dispose) Unused.prototype[Symbol.dispose] = Unused.prototype.free;

/**
 * Wanted.
 */
export class Wanted {
    constructor() {
        wasm.wanted_new();
    }
}
if (Symbol.dispose) Wanted.prototype[Symbol.dispose] = Wanted.prototype.free;
class Own {
}
if (Symbol.dispose) Own.prototype[Symbol.dispose] = Own.prototype.free;
// One of them.
const own = new Own();
const UnusedFinalization = new FinalizationRegistry(({ ptr }) => {
    wasm.unused_free(ptr);
});
const OwnFinalization = new FinalizationRegistry(({ ptr }) => {
    wasm.own_free(ptr);
});
";

    #[test]
    fn classes_that_nobody_asks_for_are_left_out_with_all_that_is_theirs() {
        let kept = used(SCRIPT, &["Wanted"]);
        assert!(!kept.contains("nused"), "{kept}");
        for line in ["export class Wanted {", "constructor() {", "class Own {", "const own = new Own();"] {
            assert!(kept.lines().any(|kept| kept == line), "{line} in {kept}");
        }
        assert_eq!(taken(&kept).into_iter().collect::<Vec<_>>(), ["own_free", "wanted_new"]);
        assert_eq!(kept.matches('{').count(), kept.matches('}').count());
        assert!(used(SCRIPT, &["Wanted", "Unused"]).contains("unused_free"));
    }
}
