//! Text of others: names, header fields, contents. Shown with its control characters visible, so that it cannot imitate or hide.

use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// Characters that stay in a segment of a path, and in a parameter of a query.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &SEGMENT.remove(b'/');

/// A text of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    /// Returns the text as the value of a parameter in a query.
    pub(super) fn query(&self) -> String {
        encode(&self.0)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\0'..='\u{1f}' => f.write_char(char::from_u32(0x2400 + u32::from(character)).unwrap_or('␀'))?,
                // Controls, and characters that have no width or change the direction.
                '\u{7f}'..='\u{9f}'
                | '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}' => {
                    write!(f, "\\u{{{:x}}}", u32::from(character))?;
                }
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Encodes the value of a parameter of a query.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Encodes the path of a blob: a container, and a name with slashes.
pub(super) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Returns a number of bytes for people.
pub(super) fn bytes(count: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let step = units.len().min(usize::try_from(count.max(1).ilog2() / 10).unwrap_or(0) + 1) - 1;
    if step == 0 {
        return format!("{count} bytes");
    }
    let tenths = (u128::from(count) * 10) >> (10 * step);
    format!("{}.{} {}", tenths / 10, tenths % 10, units[step])
}

/// Returns a time span for people.
pub(super) fn span(seconds: f64) -> String {
    match seconds.max(0.0) {
        seconds @ ..120.0 => format!("{seconds:.0} s"),
        seconds @ ..7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds @ ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        seconds => format!("{:.0} days", seconds / 86_400.0),
    }
}

/// Returns a share in percent.
pub(super) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "–".to_owned() }
}

/// Returns a share of a count in percent.
#[expect(clippy::cast_precision_loss, reason = "one digit after the point needs no more")]
pub(super) fn percent_of(part: u64, whole: u64) -> String {
    percent(part as f64, whole as f64)
}

/// Returns seconds in milliseconds.
pub(super) fn millis(seconds: Option<&f64>) -> String {
    seconds.map_or_else(|| "–".to_owned(), |seconds| format!("{:.2} ms", seconds * 1000.0))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of bytes is below 2^53")]
pub(super) fn bytes_of(count: f64) -> String {
    bytes(count.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_visible() {
        for (text, shown) in [
            ("a ü/日", "a ü/日"),
            ("a\u{202e}gpj.exe", "a\\u{202e}gpj.exe"),
            ("a\n\u{1b}[2J\u{7f}\u{200b}", "a␊␛[2J\\u{7f}\\u{200b}"),
        ] {
            assert_eq!(Text(text.to_owned()).to_string(), shown);
        }
        assert_eq!(encode_path("c/a b/?ü&\"<"), "c/a%20b/%3F%C3%BC%26%22%3C");
    }

    #[test]
    fn sizes_and_times_are_short() {
        let sizes = [0, 1023, 1536, 10 << 20].map(bytes);
        assert_eq!(sizes, ["0 bytes", "1023 bytes", "1.5 KiB", "10.0 MiB"]);
        assert_eq!([1.4, 600.0, 86_400.0].map(span), ["1 s", "10 min", "24 h"]);
    }
}
