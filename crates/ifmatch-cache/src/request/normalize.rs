//! Normal form of a path and query. Targets with the same normal form are invalidated together, but stored separately.
//!
//! Targets that are equivalent under RFC 3986 §6.2.2 or the URL standard have one normal form: percent-encoding is decoded
//! where the result isn't a separator, backslashes in a path become slashes, and dot segments are removed. Some origins
//! treat fewer targets as one resource. That is safe, since a response is reused only for the same unnormalized target.

use std::borrow::Cow;

use http::Uri;

use crate::policy::fields::{percent_decoded, percent_encode};
use crate::policy::query::QueryRules;

/// Returns the path and query of a request, not normalized.
pub(crate) fn target(uri: &Uri) -> &str {
    uri.path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str)
}

/// Applies the rules for queries to the URI of a request.
pub(crate) fn apply(rules: &QueryRules, uri: &mut Uri) {
    let (before, after) = (target(uri), rules.apply(target(uri)));
    if after != before {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = after.parse().ok();
        // The old target has the same characters, so it remains valid.
        if let Ok(new) = Uri::from_parts(parts) {
            *uri = new;
        }
    }
}

/// Returns the normal form of a path with an optional query.
pub(crate) fn normalize(target: &str) -> Cow<'_, str> {
    if is_plain(target) {
        Cow::Borrowed(target)
    } else {
        Cow::Owned(rewrite(target))
    }
}

/// Returns the common prefix of the normal forms of all targets with this prefix, except those that leave it by dot
/// segments.
pub(crate) fn normalize_prefix(start: &str) -> Cow<'_, str> {
    // Cut an incomplete escape.
    let bytes = start.as_bytes();
    let cut = bytes
        .iter()
        .rev()
        .take(2)
        .position(|byte| *byte == b'%')
        .map_or(0, |at| at + 1);
    normalize(&start[..start.len() - cut])
}

/// Returns `true` if a target is certainly in normal form.
fn is_plain(target: &str) -> bool {
    let mut before = b'/';
    let plain = target.bytes().all(|byte| {
        let dotted = byte == b'.' && before == b'/';
        before = byte;
        (PLAIN[usize::from(byte)] || byte == b'/') && !dotted
    });
    plain && target.starts_with('/')
}

fn rewrite(target: &str) -> String {
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    let mut normal = String::with_capacity(target.len() + 16);
    for segment in without_dots(path) {
        normal.push('/');
        encode(&segment, b"", &mut normal);
    }
    if let Some(query) = query {
        normal.push('?');
        encode(&percent_decoded(query), b"/?", &mut normal);
    }
    normal
}

/// Returns the decoded segments of a path. The last one is empty if the path ends with a slash or a dot segment.
fn without_dots(path: &str) -> Vec<Vec<u8>> {
    let slash = ['/', '\\'];
    let mut kept = Vec::new();
    let mut segments = path
        .strip_prefix(slash)
        .unwrap_or(path)
        .split(slash)
        .map(percent_decoded)
        .peekable();
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

fn encode(bytes: &[u8], besides: &[u8], text: &mut String) {
    for byte in bytes {
        if PLAIN[usize::from(*byte)] || besides.contains(byte) {
            text.push(char::from(*byte));
        } else {
            percent_encode(*byte, text);
        }
    }
}

/// Bytes that need no encoding in a path segment (RFC 3986 §3.3).
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
    let delimiters = matches!(
        byte,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
    );
    unreserved || delimiters || matches!(byte, b':' | b'@')
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn equivalent_paths_have_one_normal_form() {
        for (expected, spellings) in [
            (
                "/",
                &[
                    "/",
                    "/.",
                    "/..",
                    "/a/..",
                    "/%2e",
                    "/a/%2E%2e/",
                    "\\",
                    "/a\\..",
                    "*/..",
                ][..],
            ),
            (
                "/a",
                &["/%61", "/./a", "/../a", "/b/../a", "/b/.%2e/%61", "a"],
            ),
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
                assert_eq!(normalize(spelling), expected, "{spelling}");
            }
        }
    }

    #[test]
    fn different_paths_stay_different() {
        let paths = [
            "/a", "/A", "/a/", "//a", "/a?", "/a?b", "/a%3Fb", "/a+b", "/a%20b", "/a%2520b",
            "/a%00", "/a%2F", "/a%5C", "/a;b", "/..a",
        ];
        for (at, one) in paths.iter().enumerate() {
            for other in &paths[at + 1..] {
                assert_ne!(normalize(one), normalize(other), "{one} {other}");
            }
        }
    }

    /// Returns many targets of up to four of these pieces. None is a single letter, which the library would take for a
    /// drive if `|` follows.
    fn targets() -> impl Iterator<Item = String> {
        let pieces = [
            "/", "ab", ".", "..", "%2e", "%2F", "%41", "%", "{", "'", "\\", "?", "|", "%25", "ü",
        ];
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
    fn normalizing_twice_changes_nothing() {
        for target in targets() {
            let once = normalize(&target).into_owned();
            assert_eq!(normalize(&once), once, "{target}");
        }
    }

    #[test]
    fn the_url_standard_agrees_with_the_normal_form() {
        let base = Url::parse("http://a.example/").unwrap();
        for target in
            targets().filter(|target| !target.starts_with("//") && !target.starts_with("/\\"))
        {
            let url = base.join(&target).unwrap();
            let written = &url[url::Position::BeforePath..];
            assert_eq!(
                normalize(written),
                normalize(&target),
                "{target} is {written}"
            );
        }
    }

    #[test]
    fn normalized_prefixes_stay_prefixes() {
        for target in targets() {
            let whole = normalize(&target).into_owned();
            for end in (0..=target.len()).filter(|end| target.is_char_boundary(*end)) {
                let rest = target
                    .get(end.saturating_sub(2)..)
                    .unwrap_or(&target[end..]);
                let climbs = rest.contains('.') || rest.contains("2e");
                let start = normalize_prefix(&target[..end]);
                assert!(
                    climbs || whole.starts_with(&*start),
                    "{target}, {end}: {start} and {whole}"
                );
            }
        }
    }
}
