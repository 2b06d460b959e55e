//! A request's path as routes see it: the normal form, which is forwarded, and the loosest way in which a server may
//! read it.

use std::borrow::Cow;

/// Separators and segment ends that another reading may produce. Routes must not contain them, to stay unambiguous.
const UNSOUND: [&str; 12] = [
    "//", ";", "?", "#", "\\", "%2F", "%5C", "%3B", "%3F", "%23", "%25", "%00",
];

/// Characters of patterns. Routes have none: a path matches all below it, and `/*` would match nothing that's meant.
const PATTERNS: [char; 6] = ['*', '{', '}', '[', ']', '^'];

/// Returns the normal form of a path (RFC 3986 §6.2.2): letters, digits, `-`, `.`, `_` and `~` are unescaped, and the
/// remaining escapes use upper-case digits. Returns `None` if an escape is malformed.
pub(crate) fn normal(path: &str) -> Option<Cow<'_, str>> {
    let mut pieces = path.split('%');
    let first = pieces.next().unwrap_or_default();
    if first.len() == path.len() {
        return Some(Cow::Borrowed(path));
    }
    let mut normal = String::with_capacity(path.len());
    normal.push_str(first);
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        let byte = escaped(digits.as_bytes())?;
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            normal.push(char::from(byte));
        } else {
            normal.push('%');
            normal.push_str(&digits.to_ascii_uppercase());
        }
        normal.push_str(rest);
    }
    Some(Cow::Owned(normal))
}

/// Returns a path as the most tolerant server reads it: all escapes are resolved, including nested ones; backslashes
/// become slashes; a semicolon, question mark, hash or NUL ends a segment; empty segments are removed.
///
/// Returns `None` if the result has dot segments, since it may lead anywhere.
pub(crate) fn loosest(path: &str) -> Option<Vec<u8>> {
    plain_segments(&unescaped(path.as_bytes()))
}

/// Returns the loosest reading of a path without escapes.
fn plain_segments(path: &[u8]) -> Option<Vec<u8>> {
    let mut loosest = Vec::with_capacity(path.len());
    let mut last: &[u8] = &[];
    for piece in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        last = piece
            .split(|byte| matches!(byte, b';' | b'?' | b'#' | 0))
            .next()
            .unwrap_or_default();
        match last {
            b"." | b".." => return None,
            b"" => {}
            segment => {
                loosest.push(b'/');
                loosest.extend(segment);
            }
        }
    }
    if last.is_empty() {
        loosest.push(b'/');
    }
    Some(loosest)
}

/// Number of times that a path is decoded by servers that drop parameters in between.
const LEVELS: usize = 4;

/// Returns the loosest reading of a path, and how servers read it that drop the parameters of segments (`;x`) before they decode
/// escapes: to them, `/;%2Fx/admin` is `/admin`. Several servers in a row may decode it before. Others parse a path as a URL, and take
/// what follows two slashes for a host: to them, `//x/admin` is `/admin`. Returns `None` if a reading has dot segments, or if there
/// are too many.
pub(crate) fn readings(path: &str) -> Option<Vec<Vec<u8>>> {
    let mut level = path.as_bytes().to_vec();
    let plain = unescaped(&level);
    let mut readings = vec![plain_segments(&plain)?];
    if let Some(path) = after_authority(&plain) {
        readings.push(plain_segments(path)?);
    }
    if !plain.contains(&b';') {
        return Some(readings);
    }
    for _ in 0..LEVELS {
        let segments = level.split(|byte| *byte == b'/');
        let names = segments.map(|segment| {
            segment
                .split(|byte| *byte == b';')
                .next()
                .unwrap_or_default()
        });
        readings.push(plain_segments(&unescaped(
            &names.collect::<Vec<_>>().join(&b'/'),
        ))?);
        let next = decoded(&level);
        if next == level {
            return Some(readings);
        }
        level = next;
    }
    None
}

/// Returns what follows the host if a path is read as a URL without a scheme (RFC 3986 §4.2).
fn after_authority(plain: &[u8]) -> Option<&[u8]> {
    let is_separator = |byte: &u8| matches!(byte, b'/' | b'\\');
    let host = plain
        .iter()
        .position(|byte| !is_separator(byte))
        .unwrap_or(plain.len());
    let end = plain[host..]
        .iter()
        .position(is_separator)
        .map_or(plain.len(), |at| host + at);
    (host > 1).then(|| &plain[end..])
}

/// Resolves escapes once.
fn decoded(path: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(path.len()), path);
    while let [first, after @ ..] = rest {
        let byte = after.get(..2).filter(|_| *first == b'%').and_then(escaped);
        plain.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    plain
}

/// Returns `true` if all servers read a normalized path alike, as required of a route's path.
pub(crate) fn is_sound(normal: &str) -> bool {
    normal.starts_with('/')
        && loosest(normal).is_some()
        && !UNSOUND.iter().any(|part| normal.contains(part))
}

/// Returns `true` if a route's path looks like a pattern: a glob, a template or a regular expression.
pub(crate) fn is_pattern(path: &str) -> bool {
    path.contains(PATTERNS) || path.ends_with('$')
}

/// Resolves escapes repeatedly until none is left: `%2525` becomes a percent sign.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    for byte in path {
        plain.push(*byte);
        // An unescaped byte can complete another escape as its last digit.
        while let Some((rest, [b'%', digits @ ..])) = plain.split_last_chunk::<3>()
            && let Some(byte) = escaped(digits)
        {
            let end = rest.len();
            plain.truncate(end);
            plain.push(byte);
        }
    }
    plain
}

/// Returns the byte encoded by two hexadecimal digits.
fn escaped(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_form_resolves_escapes_that_mean_nothing() {
        for (path, expected) in [
            ("/a/b", Some("/a/b")),
            ("/%61dmin/%7e%2D", Some("/admin/~-")),
            ("/a%2fb%3b%c3%a9", Some("/a%2Fb%3B%C3%A9")),
            ("/%2561", Some("/%2561")),
            ("/%", None),
            ("/%a", None),
            ("/%u002e", None),
            ("/%+1", None),
            ("/%e", None),
        ] {
            assert_eq!(normal(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn the_loosest_reading_resolves_everything_that_any_server_resolves() {
        for (path, expected) in [
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("/", "/"),
            ("//a///b", "/a/b"),
            ("/a;x=1/b;y", "/a/b"),
            ("/a/;x", "/a/"),
            ("/a%2Fb%5Cc\\d", "/a/b/c/d"),
            ("/a%3Bx/b%253Bx", "/a/b"),
            ("/%25%32%35%32561", "/a"),
            ("/a%3F/b%23x%00y", "/a/b"),
            ("/100%25", "/100%"),
            ("/..x/.well-known/x..", "/..x/.well-known/x.."),
        ] {
            assert_eq!(
                loosest(path).as_deref(),
                Some(expected.as_bytes()),
                "{path}"
            );
        }
        for path in [
            "/a/../b",
            "/a/..",
            "/./a",
            "/a/%2e%2E/b",
            "/a/..;/b",
            "/a/..;x=1/b",
            "/a/.%2e;foo/b",
            "/a/..%3b/b",
            "/a/..%2fb",
            "/a/..%5Cb",
            "/a\\..\\b",
            "/;/..;/a",
            "/%252e%252e/a",
            "/%25252e./a",
            "/a/..%00/b",
            "/a/..%3Fx",
            "/%2e%2e%253b/a",
        ] {
            assert_eq!(loosest(path), None, "{path}");
        }
    }

    #[test]
    fn what_follows_two_slashes_may_be_a_host() {
        for (path, other) in [
            ("//x/admin", Some("/admin")),
            ("///x/admin", Some("/admin")),
            ("/\\x/admin", Some("/admin")),
            ("/%2Fx:80/admin/y", Some("/admin/y")),
            ("//x", Some("/")),
            ("//", Some("/")),
            ("/x//admin", None),
            ("/x/admin", None),
            ("/", None),
        ] {
            let found = readings(path).expect("no dot segments");
            assert_eq!(
                found.get(1).map(Vec::as_slice),
                other.map(str::as_bytes),
                "{path}"
            );
        }
    }

    #[test]
    fn many_escapes_of_escapes_are_resolved_in_one_pass() {
        let deep = format!("/%{}2e.", "25".repeat(10_000));
        assert_eq!(loosest(&deep), None);
    }

    #[test]
    fn a_route_has_no_pattern() {
        for path in [
            "/*",
            "/api/*",
            "/api*",
            "/api/**",
            "/x/{path}",
            "/{*rest}",
            "/[a-z]",
            "^/a",
            "/a$",
        ] {
            assert!(is_pattern(path), "{path}");
        }
        for path in ["/", "/api", "/api/", "/a$b", "/%2A", "/a.b+c"] {
            assert!(!is_pattern(path), "{path}");
        }
    }

    #[test]
    fn a_route_s_path_means_one_thing() {
        for path in [
            "/",
            "/images",
            "/images/large/",
            "/caf%C3%A9",
            "/.well-known/acme",
        ] {
            assert!(is_sound(path), "{path}");
        }
        for path in [
            "images", "/a//b", "/a;b", "/a/../b", "/a?b", "/a%2Fb", "/100%25", "/a\\b",
        ] {
            assert!(!is_sound(path), "{path}");
        }
    }
}
