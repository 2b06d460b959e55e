//! The name that a proxy leaves in `Via` (RFC 9110 §7.6.3), by which it knows a request that comes back to it.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};
use ifmatch_core::fields::{self, hop_by_hop};

/// The name of one proxy. Another one of ours, before or behind it, has another, and nobody can guess it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(u64);

impl Name {
    /// A name that no other proxy has.
    pub(crate) fn new() -> Self {
        // Its keys are drawn at random.
        Self(RandomState::new().hash_one(VIA))
    }

    /// Adds it to those of the proxies that a request has passed.
    pub(crate) fn leave(self, headers: &mut HeaderMap, version: Version) {
        add(headers, version, &self);
    }

    /// Whether it was left in these header fields.
    pub(crate) fn is_in(self, headers: &HeaderMap) -> bool {
        if !fields::has(headers, &VIA) {
            return false;
        }
        let name = self.to_string();
        hop_by_hop::tokens(headers, &VIA)
            .filter_map(|member| std::str::from_utf8(member).ok()?.split_ascii_whitespace().nth(1))
            .any(|found| found.eq_ignore_ascii_case(&name))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ifmatch-{:016x}", self.0)
    }
}

/// Says on a response that it has passed a proxy.
pub(crate) fn answer(headers: &mut HeaderMap, version: Version) {
    add(headers, version, &"ifmatch");
}

fn add(headers: &mut HeaderMap, version: Version, name: &dyn fmt::Display) {
    headers.extend(HeaderValue::try_from(format!("{} {name}", protocol(version))).map(|value| (VIA, value)));
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2.0",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_knows_its_own_name_alone() {
        let (own, other) = (Name::new(), Name::new());
        let mut headers = HeaderMap::new();
        assert!(!own.is_in(&headers));
        headers.append(VIA, HeaderValue::from_static("1.1 ifmatch, 1.0 fred (a comment), 1.1,,"));
        other.leave(&mut headers, Version::HTTP_2);
        assert!(!own.is_in(&headers) && other.is_in(&headers));
        own.leave(&mut headers, Version::HTTP_11);
        assert!(own.is_in(&headers) && other.is_in(&headers));
    }

    #[test]
    fn a_name_is_found_in_whatever_form_the_next_proxy_sends_it() {
        let name = Name::new();
        let upper = name.to_string().to_ascii_uppercase();
        for (line, expected) in [
            (format!("1.1 a,1.1 {name}"), true),
            (format!("1.1 a , HTTP/1.1\t{upper} (why not),1.1 b"), true),
            (format!("1.1 {name}0"), false),
            (format!("1.1 a ({name})"), false),
            (name.to_string(), false),
        ] {
            let value = HeaderValue::try_from(&line).expect("a value");
            assert_eq!(name.is_in(&HeaderMap::from_iter([(VIA, value)])), expected, "{line}");
        }
    }
}
