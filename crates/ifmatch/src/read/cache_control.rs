//! What `Cache-Control` allows a memory of responses (RFC 9111 §5.2), as far as this layer needs it.

use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

/// What the header fields of a response allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// Whether the response is the same for all who ask for it.
    pub(crate) shared: bool,
    /// Whether it may be remembered.
    pub(crate) stored: bool,
    /// How long it may be used without asking the resource.
    pub(crate) lifetime: Duration,
    /// How old it was when it came.
    pub(crate) age: Duration,
}

impl Allowed {
    pub(crate) fn by(response: &HeaderMap) -> Self {
        let mut told = Told::default();
        let (mut cookie, mut age) = (false, None);
        for (name, value) in response {
            if *name == CACHE_CONTROL {
                directives(value).for_each(|(name, value)| told.hear(name, value));
            } else if *name == AGE {
                age.get_or_insert_with(|| seconds(value.as_bytes()));
            } else {
                cookie |= *name == SET_COOKIE;
            }
        }
        let lifetime = told.s_maxage.or(told.max_age).filter(|_| !told.no_cache).unwrap_or_default();
        let stored = !(told.private || told.no_store || cookie);
        Self { shared: !told.private, stored, lifetime, age: age.unwrap_or_default() }
    }
}

/// Whether a request wants the resource itself to answer (RFC 9111 §5.2.1).
pub(crate) fn wants_origin(request: &HeaderMap) -> bool {
    let forced = |(name, value): (&[u8], &[u8])| {
        name.eq_ignore_ascii_case(b"no-cache")
            || name.eq_ignore_ascii_case(b"no-store")
            || (name.eq_ignore_ascii_case(b"max-age") && seconds(value).is_zero())
    };
    request.get_all(CACHE_CONTROL).iter().flat_map(directives).any(forced)
}

#[derive(Default)]
struct Told {
    private: bool,
    no_store: bool,
    no_cache: bool,
    max_age: Option<Duration>,
    s_maxage: Option<Duration>,
}

impl Told {
    fn hear(&mut self, name: &[u8], value: &[u8]) {
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

/// Of a repeated directive the stricter one counts.
fn shorten(lifetime: &mut Option<Duration>, told: Duration) {
    *lifetime = Some(lifetime.map_or(told, |before| before.min(told)));
}

/// Anything but digits is no time at all.
fn seconds(value: &[u8]) -> Duration {
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    Duration::from_secs(digits.and_then(|text| text.parse::<u32>().ok()).unwrap_or_default().into())
}

/// The directives of a line: names, and values or nothing. A comma in quotes separates nothing.
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
        let allowed = Allowed::by(&headers);
        (allowed.stored, allowed.lifetime.as_secs())
    }

    #[test]
    fn directives_are_read_in_all_lines_and_spellings() {
        assert_eq!(lifetime(&[]), (true, 0));
        assert_eq!(lifetime(&["public, max-age=60"]), (true, 60));
        assert_eq!(lifetime(&["Max-Age=\"60\""]), (true, 60));
        assert_eq!(lifetime(&["max-age=60, s-maxage=5"]), (true, 5));
        assert_eq!(lifetime(&["max-age=60", "no-cache"]), (true, 0));
        assert_eq!(lifetime(&["max-age=60", "max-age=5"]), (true, 5));
        assert_eq!(lifetime(&["max-age=-1"]), (true, 0));
        assert_eq!(lifetime(&["max-age=60, PRIVATE"]), (false, 60));
        assert_eq!(lifetime(&["no-store"]), (false, 0));
        assert_eq!(lifetime(&["extension=\"a, private\", max-age=9"]), (true, 9));
        assert_eq!(lifetime(&["private=\"x, y\""]), (false, 0));
    }
}
