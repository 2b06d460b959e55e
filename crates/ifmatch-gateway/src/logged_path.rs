//! The path of a request as the log shows it: in visible ASCII, so that nothing in it moves a terminal's cursor, turns the
//! line around, or looks like a space.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What is written as `%` and two digits, besides all that is not ASCII.
const HIDDEN: &AsciiSet = &CONTROLS.add(b' ');

/// Shows a path.
pub(crate) fn show(path: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(path, HIDDEN)
}

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn what_a_terminal_obeys_is_shown_as_digits() {
        for (path, shown) in [
            ("/c/a%20b\"{}|^`~", "/c/a%20b\"{}|^`~"),
            ("/c/\u{9b}31m", "/c/%C2%9B31m"),
            ("/c/\u{202e}x", "/c/%E2%80%AEx"),
            ("/c/a\u{2003}status=200", "/c/a%E2%80%83status=200"),
            ("/c/\u{1b}\u{7f} ", "/c/%1B%7F%20"),
        ] {
            assert_eq!(show(path).to_string(), shown);
        }
    }
}
