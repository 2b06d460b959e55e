//! The proxy's name in `Via` (RFC 9110 §7.6.3), which detects forwarding loops.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};
use ifmatch_core::fields::{self, hop_by_hop};

/// The random name of one proxy. Other instances in front of it or behind it have other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(u64);

impl Name {
    /// Creates a unique name.
    pub(crate) fn new() -> Self {
        // The hasher has random keys.
        Self(RandomState::new().hash_one(VIA))
    }

    /// Adds the name to a request.
    pub(crate) fn add_to(self, headers: &mut HeaderMap, version: Version) {
        add(headers, version, &self);
    }

    /// Returns `true` if these header fields contain the name.
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

/// Adds `Via` to a response.
pub(crate) fn add_to_response(headers: &mut HeaderMap, version: Version) {
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
    fn a_proxy_recognises_only_its_own_name() {
        let (own, other) = (Name::new(), Name::new());
        let mut headers = HeaderMap::new();
        assert!(!own.is_in(&headers));
        headers.append(VIA, HeaderValue::from_static("1.1 ifmatch, 1.0 fred (a comment), 1.1,,"));
        other.add_to(&mut headers, Version::HTTP_2);
        assert!(!own.is_in(&headers) && other.is_in(&headers));
        own.add_to(&mut headers, Version::HTTP_11);
        assert!(own.is_in(&headers) && other.is_in(&headers));
    }

    #[test]
    fn a_name_is_found_in_any_form_that_proxies_send() {
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
