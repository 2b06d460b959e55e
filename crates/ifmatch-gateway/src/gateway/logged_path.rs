//! Escaping of paths for the log: only visible ASCII, so that a path cannot move the cursor of a terminal, change the
//! text direction, imitate a space or end a quoted field.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// ASCII characters that are percent-encoded, in addition to all non-ASCII characters.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"');

/// Escapes a path.
pub(crate) fn escape(path: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(path, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn control_and_non_ascii_characters_are_escaped() {
        for (path, shown) in [
            ("/c/a%20b{}|^`~", "/c/a%20b{}|^`~"),
            ("/c/a\"b", "/c/a%22b"),
            ("/c/\u{9b}31m", "/c/%C2%9B31m"),
            ("/c/\u{202e}x", "/c/%E2%80%AEx"),
            ("/c/a\u{2003}status=200", "/c/a%E2%80%83status=200"),
            ("/c/\u{1b}\u{7f} ", "/c/%1B%7F%20"),
        ] {
            assert_eq!(escape(path).to_string(), shown);
        }
    }
}
