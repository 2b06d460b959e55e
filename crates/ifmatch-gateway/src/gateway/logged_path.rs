//! Escaping of paths and header fields for the log: only visible ASCII, so that none can move the cursor of a terminal, change the
//! text direction, imitate a space or end a quoted field.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// ASCII characters that are percent-encoded, in addition to all non-ASCII characters.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"');

/// As [`ESCAPED`], but with spaces, and without backslashes, by which some programs escape the end of a field.
const TEXT: &AsciiSet = &CONTROLS.add(b'"').add(b'\\');

/// Escapes a field that has words. Bytes that are not UTF-8 become replacement characters first.
pub(crate) fn escape_text(value: &[u8]) -> String {
    utf8_percent_encode(&String::from_utf8_lossy(value), TEXT).to_string()
}

/// Escapes a path.
pub(crate) fn escape(path: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(path, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::{escape, escape_text};

    #[test]
    fn words_keep_their_spaces_and_cannot_end_a_field() {
        for (value, shown) in [
            (&b"curl/8 (x)"[..], "curl/8 (x)"),
            (b"a\" 200 5 \"", "a%22 200 5 %22"),
            (b"a\\", "a%5C"),
            (b"a\x1b[2J\tb\xff", "a%1B[2J%09b%EF%BF%BD"),
        ] {
            assert_eq!(escape_text(value), shown);
        }
    }

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
