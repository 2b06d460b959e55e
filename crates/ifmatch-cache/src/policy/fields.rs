//! Parsing of lists, seconds and dates in header fields.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::date::HttpDate;

/// Maximum number of seconds (RFC 9111 §1.2.2): 68 years.
const MAX_SECONDS: u64 = 1 << 31;

/// Returns the trimmed members of a list in these lines, without empty ones.
///
/// Quoted commas aren't separators. A line with an unclosed quote is split at every comma, so a `no-store` in it isn't
/// missed.
pub(crate) fn members<'a>(
    lines: impl IntoIterator<Item = &'a HeaderValue>,
) -> impl Iterator<Item = &'a [u8]> {
    lines.into_iter().flat_map(|line| split(line.as_bytes()))
}

/// Returns the members of one line, without empty ones.
pub(crate) fn split(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_all(line).filter(|member| !member.is_empty())
}

/// Returns the members of one line, including empty ones.
pub(crate) fn split_all(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let closed = !line.contains(&b'"') || quotes(line) == Quotes::Outside;
    let mut quotes = Quotes::Outside;
    let separates = move |byte: &u8| {
        quotes = quotes.after(*byte);
        *byte == b',' && (quotes == Quotes::Outside || !closed)
    };
    line.split(separates).map(<[u8]>::trim_ascii)
}

/// Parser state for quoted strings (RFC 9110 §5.6.4).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Outside,
    Inside,
    Escaped,
}

impl Quotes {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Outside, b'"') | (Self::Escaped, _) => Self::Inside,
            (Self::Inside, b'"') => Self::Outside,
            (Self::Inside, b'\\') => Self::Escaped,
            (same, _) => same,
        }
    }
}

fn quotes(line: &[u8]) -> Quotes {
    line.iter()
        .fold(Quotes::Outside, |quotes, byte| quotes.after(*byte))
}

/// Returns `true` for a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().copied().all(is_token_byte)
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns `true` for a single quoted string (RFC 9110 §5.6.4) without trailing text.
pub(crate) fn is_quoted(value: &[u8]) -> bool {
    let Some((last, before)) = value.split_last() else {
        return false;
    };
    let opened = before.first() == Some(&b'"');
    let inside = |quotes: Option<Quotes>, byte: &u8| {
        quotes
            .map(|quotes| quotes.after(*byte))
            .filter(|quotes| *quotes != Quotes::Outside)
    };
    opened
        && *last == b'"'
        && before.iter().fold(Some(Quotes::Outside), inside) == Some(Quotes::Inside)
}

/// Returns the content of a quoted string without escapes.
pub(crate) fn unquote(value: &[u8]) -> Option<&[u8]> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!inner.contains(&b'\\')).then_some(inner)
}

/// Appends a byte percent-encoded.
pub(crate) fn percent_encode(byte: u8, text: &mut String) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    text.extend([
        '%',
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}

/// Decodes percent-encoding. Malformed escapes stay.
pub(crate) fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        bytes.push(escaped.map_or(*first, |(high, low)| high << 4 | low));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    bytes
}

fn digit(hex: u8) -> Option<u8> {
    char::from(hex)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// Parses `delta-seconds` (RFC 9111 §1.2.2), which allows only digits.
pub(crate) fn seconds(digits: &[u8]) -> Option<Duration> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(*byte - b'0'));
    let add = |sum: u64, digit: Option<u64>| Some((sum * 10 + digit?).min(MAX_SECONDS));
    let sum = digits.iter().map(digit).try_fold(0, add)?;
    (!digits.is_empty()).then_some(Duration::from_secs(sum))
}

/// Parses a date in any letter case, as a cache should (RFC 9111 §4.2), and with any weekday: the grammar doesn't tie the
/// weekday to the date (RFC 9110 §5.6.7), and ignoring a `Date` would make the response seem younger. Returns `None` if the
/// field is absent, malformed or repeated.
pub(crate) fn date(headers: &HeaderMap, name: HeaderName) -> Option<HttpDate> {
    let mut lines = headers.get_all(name).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    HttpDate::parse(line.as_bytes()).or_else(|| on_any_weekday(&in_usual_case(line.as_bytes())))
}

const WEEKDAYS: [&[u8]; 7] = [
    b"Monday",
    b"Tuesday",
    b"Wednesday",
    b"Thursday",
    b"Friday",
    b"Saturday",
    b"Sunday",
];

/// Parses a date with a wrong weekday, written in full or as three letters.
fn on_any_weekday(date: &[u8]) -> Option<HttpDate> {
    let (weekday, rest) = date.split_at(date.iter().position(|byte| !byte.is_ascii_alphabetic())?);
    let written = |day: &'static [u8]| if weekday.len() == 3 { &day[..3] } else { day };
    let days = WEEKDAYS.map(written);
    let known = days.contains(&weekday);
    days.iter()
        .filter(|_| known)
        .find_map(|day| HttpDate::parse(&[day, rest].concat()))
}

/// Capitalises words, and `GMT`.
fn in_usual_case(date: &[u8]) -> Vec<u8> {
    let mut usual = date.to_ascii_lowercase();
    for word in usual.split_mut(|byte| !byte.is_ascii_alphabetic()) {
        let capitals = if word == b"gmt" {
            word.len()
        } else {
            word.len().min(1)
        };
        word[..capitals].make_ascii_uppercase();
    }
    usual
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<&str> {
        split(line.as_bytes())
            .map(|member| std::str::from_utf8(member).unwrap())
            .collect()
    }

    #[test]
    fn quoted_commas_are_no_separators() {
        assert_eq!(texts(r#"a, b="c,d" ,, e"#), ["a", r#"b="c,d""#, "e"]);
        assert_eq!(texts(r#"a="\",", b"#), [r#"a="\",""#, "b"]);
        assert_eq!(texts(r#"a="b, no-store"#), [r#"a="b"#, "no-store"]);
    }

    #[test]
    fn a_wrong_weekday_does_not_invalidate_a_date() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::DATE, value.parse().unwrap());
            date(&headers, http::header::DATE).map(HttpDate::unix)
        };
        for (right, wrong) in [
            (
                "Sun, 06 Nov 1994 08:49:37 GMT",
                "tue, 06 nov 1994 08:49:37 gmt",
            ),
            (
                "Sunday, 06-Nov-94 08:49:37 GMT",
                "Monday, 06-Nov-94 08:49:37 GMT",
            ),
            ("Sun Nov  6 08:49:37 1994", "Sat Nov  6 08:49:37 1994"),
        ] {
            assert!(
                read(right).is_some() && read(right) == read(wrong),
                "{wrong}"
            );
        }
        let no_dates = [
            "0",
            "",
            "Mon",
            "Moo, 06 Nov 1994 08:49:37 GMT",
            "Monda, 06 Nov 1994 08:49:37 GMT",
            "Monday, 06 Nov 1994 08:49:37 GMT",
            "Mon, 06-Nov-94 08:49:37 GMT",
            "Mon, 31 Nov 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37 GMT",
        ];
        for wrong in no_dates {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn seconds_are_digits() {
        assert_eq!(seconds(b"0061"), Some(Duration::from_secs(61)));
        assert_eq!(
            seconds(b"99999999999999999999999999"),
            Some(Duration::from_secs(MAX_SECONDS))
        );
        for wrong in ["", "-1", "1.0", "1s", " 1", "+1"] {
            assert_eq!(seconds(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
