//! The spellings of a path and query: all of one normal form are invalidated together, and each is stored for itself.
//!
//! What is the same for RFC 3986 §6.2.2, or for the URL standard, has one normal form: percent-encoding is undone where that
//! makes no slash, backslashes of a path are slashes, dot segments are gone. That is more than some origins take for one
//! resource, and does no harm: a response is used only for requests that spell the target as its own did.

use std::borrow::Cow;

use http::Uri;

/// The path and query of a request as they came.
pub(crate) fn of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
}

/// The normal form of a path with or without a query.
pub(crate) fn normal(target: &str) -> Cow<'_, str> {
    if is_plain(target) { Cow::Borrowed(target) } else { Cow::Owned(normalized(target)) }
}

/// What the normal forms of all targets that begin so begin with, but for those that climb out of it.
pub(crate) fn normal_prefix(start: &str) -> Cow<'_, str> {
    // Half an escape says nothing yet.
    let bytes = start.as_bytes();
    let cut = bytes.iter().rev().take(2).position(|byte| *byte == b'%').map_or(0, |at| at + 1);
    normal(&start[..start.len() - cut])
}

/// Whether a target is its own normal form: in doubt it is not.
fn is_plain(target: &str) -> bool {
    let mut before = b'/';
    let plain = target.bytes().all(|byte| {
        let dotted = byte == b'.' && before == b'/';
        before = byte;
        (PLAIN[usize::from(byte)] || byte == b'/') && !dotted
    });
    plain && target.starts_with('/')
}

fn normalized(target: &str) -> String {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut normal = String::with_capacity(target.len() + 16);
    for segment in without_dots(path) {
        normal.push('/');
        encode(&segment, b"", &mut normal);
    }
    if let Some(query) = query {
        normal.push('?');
        encode(&decoded(query), b"/?", &mut normal);
    }
    normal
}

/// The segments of a path, decoded. The last one is empty where the path ends in a slash, or in a dot segment.
fn without_dots(path: &str) -> Vec<Vec<u8>> {
    let slash = ['/', '\\'];
    let mut kept = Vec::new();
    let mut segments = path.strip_prefix(slash).unwrap_or(path).split(slash).map(decoded).peekable();
    while let Some(segment) = segments.next() {
        if segment == b".." {
            kept.pop();
        }
        if !matches!(&segment[..], b"." | b"..") {
            kept.push(segment);
        } else if segments.peek().is_none() {
            kept.push(Vec::new());
        }
    }
    kept
}

/// What the percent-encoding says; what is none stays.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        bytes.push(escaped.map_or(*first, |(high, low)| high << 4 | low));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes
}

fn digit(hex: u8) -> Option<u8> {
    char::from(hex).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn encode(bytes: &[u8], besides: &[u8], text: &mut String) {
    for byte in bytes {
        if PLAIN[usize::from(*byte)] || besides.contains(byte) {
            text.push(char::from(*byte));
        } else {
            escape(*byte, text);
        }
    }
}

/// Writes a byte percent-encoded.
pub(crate) fn escape(byte: u8, text: &mut String) {
    text.extend(['%', hex(byte >> 4), hex(byte & 15)]);
}

fn hex(half: u8) -> char {
    char::from_digit(half.into(), 16).unwrap_or_default().to_ascii_uppercase()
}

/// What needs no encoding in a segment of a path (RFC 3986 §3.3).
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        plain[byte as usize] = byte.is_ascii_alphanumeric() || is_plain_mark(byte);
        byte += 1;
    }
    plain
};

const fn is_plain_mark(byte: u8) -> bool {
    let unreserved = matches!(byte, b'-' | b'.' | b'_' | b'~');
    let delimiters = matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
    unreserved || delimiters || matches!(byte, b':' | b'@')
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn spellings_of_one_path_have_one_normal_form() {
        for (expected, spellings) in [
            ("/", &["/", "/.", "/..", "/a/..", "/%2e", "/a/%2E%2e/", "\\", "/a\\..", "*/.."][..]),
            ("/a", &["/%61", "/./a", "/../a", "/b/../a", "/b/.%2e/%61", "a"]),
            ("/a/", &["/a/.", "/a/b/..", "/a\\", "/a/%2f/.."]),
            ("/a%2Fb", &["/a%2fb", "/%61%2F%62"]),
            ("//a", &["//a", "/.//a"]),
            ("/%7Bid%7D", &["/{id}", "/%7bid%7D", "/%7b%69d}"]),
            ("/%C3%BC", &["/ü", "/%c3%bc"]),
            ("/a%3Fb", &["/a%3fb"]),
            ("/a?b", &["/%61?%62"]),
            ("/?/../?%25%5C", &["/?/../?%25\\", "/?%2F..%2f%3f%\\"]),
            ("/%25zz%25", &["/%zz%", "/%25zz%25"]),
            ("/%2541", &["/%2541"]),
            ("/.well-known", &["/.well-known", "/%2ewell-known"]),
        ] {
            for spelling in spellings {
                assert_eq!(normal(spelling), expected, "{spelling}");
            }
        }
    }

    #[test]
    fn different_paths_stay_different() {
        let paths = [
            "/a", "/A", "/a/", "//a", "/a?", "/a?b", "/a%3Fb", "/a+b", "/a%20b", "/a%2520b", "/a%00", "/a%2F", "/a%5C",
            "/a;b", "/..a",
        ];
        for (at, one) in paths.iter().enumerate() {
            for other in &paths[at + 1..] {
                assert_ne!(normal(one), normal(other), "{one} {other}");
            }
        }
    }

    /// Many targets of up to four of these pieces. There is no single letter: with `|` after it, the library takes it for a
    /// drive, which no dot segment removes.
    fn targets() -> impl Iterator<Item = String> {
        let pieces = ["/", "ab", ".", "..", "%2e", "%2F", "%41", "%", "{", "'", "\\", "?", "|", "%25", "ü"];
        let most = pieces.len().pow(4);
        (0..most).step_by(7).map(move |mut number| {
            let mut target = "/".to_owned();
            while number > 0 {
                target.push_str(pieces[number % pieces.len()]);
                number /= pieces.len();
            }
            target
        })
    }

    #[test]
    fn a_normal_form_is_its_own() {
        for target in targets() {
            let once = normal(&target).into_owned();
            assert_eq!(normal(&once), once, "{target}");
        }
    }

    #[test]
    fn the_url_standard_changes_no_normal_form() {
        let base = Url::parse("http://a.example/").unwrap();
        for target in targets().filter(|target| !target.starts_with("//") && !target.starts_with("/\\")) {
            let url = base.join(&target).unwrap();
            let written = &url[url::Position::BeforePath..];
            assert_eq!(normal(written), normal(&target), "{target} is {written}");
        }
    }

    #[test]
    fn what_begins_so_has_a_normal_form_that_begins_so() {
        for target in targets() {
            let whole = normal(&target).into_owned();
            for end in (0..=target.len()).filter(|end| target.is_char_boundary(*end)) {
                let rest = target.get(end.saturating_sub(2)..).unwrap_or(&target[end..]);
                let climbs = rest.contains('.') || rest.contains("2e");
                let start = normal_prefix(&target[..end]);
                assert!(climbs || whole.starts_with(&*start), "{target}, {end}: {start} and {whole}");
            }
        }
    }
}
