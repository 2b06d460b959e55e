//! Text of others: names, header fields, contents. Shown with its control characters visible, so it can't imitate or hide.

use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// ASCII characters that are encoded in a segment of a path, and in a parameter of a query: all but the unreserved ones (RFC 3986 §2.3).
pub const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A text of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(pub String);

impl Text {
    /// Returns the text as the value of a parameter in a query.
    pub fn query(&self) -> String {
        utf8_percent_encode(&self.0, SEGMENT).to_string()
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
                '\0'..='\u{1f}' => {
                    f.write_char(char::from_u32(0x2400 + u32::from(character)).unwrap_or('␀'))?;
                }
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
    }
}
