//! The part of `Cache-Control` (RFC 9111 §5.2) that decides what may be remembered.

use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

/// The reuse that the header fields of a response allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllowedReuse {
    /// `true` if the response is for one user.
    pub(crate) is_private: bool,
    /// `true` if the response may be remembered.
    pub(crate) may_be_stored: bool,
    /// The freshness lifetime (RFC 9111 §4.2.1).
    pub(crate) lifetime: Duration,
    /// The age on arrival.
    pub(crate) age: Duration,
}

impl AllowedReuse {
    pub(crate) fn of(response: &HeaderMap) -> Self {
        let mut given = CacheDirectives::default();
        let (mut sets_cookie, mut age) = (false, None);
        for (name, value) in response {
            if *name == CACHE_CONTROL {
                directives(value).for_each(|(name, value)| given.add(name, value));
            } else if *name == AGE {
                age.get_or_insert_with(|| seconds(value.as_bytes()));
            } else {
                sets_cookie |= *name == SET_COOKIE;
            }
        }
        let lifetime = given
            .s_maxage
            .or(given.max_age)
            .filter(|_| !given.no_cache)
            .unwrap_or_default();
        let may_be_stored = !(given.private || given.no_store || sets_cookie);
        Self {
            is_private: given.private,
            may_be_stored,
            lifetime,
            age: age.unwrap_or_default(),
        }
    }
}

/// Returns `true` if a request demands a response from the resource itself (RFC 9111 §5.2.1).
pub(crate) fn demands_origin(request: &HeaderMap) -> bool {
    let demands = |(name, value): (&[u8], &[u8])| {
        name.eq_ignore_ascii_case(b"no-cache")
            || name.eq_ignore_ascii_case(b"no-store")
            || (name.eq_ignore_ascii_case(b"max-age") && seconds(value).is_zero())
    };
    request
        .get_all(CACHE_CONTROL)
        .iter()
        .flat_map(directives)
        .any(demands)
}

/// The directives of a response.
#[derive(Default)]
struct CacheDirectives {
    private: bool,
    no_store: bool,
    no_cache: bool,
    max_age: Option<Duration>,
    s_maxage: Option<Duration>,
}

impl CacheDirectives {
    fn add(&mut self, name: &[u8], value: &[u8]) {
        match name.to_ascii_lowercase().as_slice() {
            b"private" => self.private = true,
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"max-age" => shorten(&mut self.max_age, seconds(value)),
            b"s-maxage" => shorten(&mut self.s_maxage, seconds(value)),
            _ => {}
        }
    }
}

/// The stricter of repeated directives applies.
fn shorten(lifetime: &mut Option<Duration>, given: Duration) {
    *lifetime = Some(lifetime.map_or(given, |before| before.min(given)));
}

/// Parses delta-seconds. Invalid values count as 0.
fn seconds(value: &[u8]) -> Duration {
    let value = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    Duration::from_secs(
        digits
            .and_then(|text| text.parse::<u32>().ok())
            .unwrap_or_default()
            .into(),
    )
}

/// Returns the names and values of the directives in a line. Commas in quotes don't separate.
fn directives(line: &HeaderValue) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut quoted = false;
    let items = line.as_bytes().split(move |byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    });
    items.map(|item| match item.iter().position(|byte| *byte == b'=') {
        Some(at) => (item[..at].trim_ascii(), item[at + 1..].trim_ascii()),
        None => (item.trim_ascii(), &item[..0]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(lines: &[&'static str]) -> (bool, u64) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, HeaderValue::from_static(line));
        }
        let reuse = AllowedReuse::of(&headers);
        (reuse.may_be_stored, reuse.lifetime.as_secs())
    }

    #[test]
    fn directives_are_parsed_from_all_lines_in_any_case() {
        assert_eq!(lifetime(&[]), (true, 0));
        assert_eq!(lifetime(&["public, max-age=60"]), (true, 60));
        assert_eq!(lifetime(&["Max-Age=\"60\""]), (true, 60));
        assert_eq!(lifetime(&["max-age=60, s-maxage=5"]), (true, 5));
        assert_eq!(lifetime(&["max-age=60", "no-cache"]), (true, 0));
        assert_eq!(lifetime(&["max-age=60", "max-age=5"]), (true, 5));
        assert_eq!(lifetime(&["max-age=-1"]), (true, 0));
        assert_eq!(lifetime(&["max-age=60, PRIVATE"]), (false, 60));
        assert_eq!(lifetime(&["no-store"]), (false, 0));
        assert_eq!(
            lifetime(&["extension=\"a, private\", max-age=9"]),
            (true, 9)
        );
        assert_eq!(lifetime(&["private=\"x, y\""]), (false, 0));
    }
}
