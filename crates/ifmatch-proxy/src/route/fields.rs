//! Changes of a route to header fields, and the fields that no route may change.

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE,
    ETAG, EXPECT, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    LAST_MODIFIED, MAX_FORWARDS, RANGE, TRAILER, VARY, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::fields::{forwarded, hop_by_hop};

use crate::upstream::InvalidUpstream;

/// Fields that delimit a message's content or name its coding, and `Via`, which the proxy writes.
const COMMON: [HeaderName; 5] = [
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    TRAILER,
    VIA,
];

/// Fields that select the resource, the version or the part that a request is about, or a coding that its client understands. The
/// proxy also sets the fields that describe the client (`Forwarded`, `X-Forwarded-*`).
const OF_REQUESTS: [HeaderName; 10] = [
    ACCEPT_ENCODING,
    EXPECT,
    HOST,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    MAX_FORWARDS,
    RANGE,
];

/// Fields that identify a version, or by which a cache selects and dates a response.
const OF_RESPONSES: [HeaderName; 7] = [
    ACCEPT_RANGES,
    AGE,
    HeaderName::from_static("cache-status"),
    DATE,
    ETAG,
    LAST_MODIFIED,
    VARY,
];

/// The messages that [`FieldRules`] apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// Requests to an upstream.
    Requests,
    /// Responses of an upstream, before a cache in front stores them.
    Responses,
}

/// Changes to header fields: fields are removed, then set, then added.
///
/// Removing or setting a field removes all its spellings that CGI takes for the same name, such as `X_Site` for `X-Site`, so
/// no client can add another value.
///
/// ```
/// use ifmatch_proxy::{FieldRules, Messages};
///
/// let rules = FieldRules::new(Messages::Requests).remove("cookie")?.set("x-site", "shop")?.add("x-hint", "a")?;
/// assert!(FieldRules::new(Messages::Requests).set("host", "b.example").is_err());
/// # drop(rules);
/// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
/// ```
#[derive(Clone, Debug)]
pub struct FieldRules {
    messages: Messages,
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
    add: Vec<(HeaderName, HeaderValue)>,
}

impl FieldRules {
    /// Creates rules that change nothing.
    pub fn new(messages: Messages) -> Self {
        Self {
            messages,
            remove: Vec::new(),
            set: Vec::new(),
            add: Vec::new(),
        }
    }

    /// Removes a field.
    ///
    /// # Errors
    /// Fails if the name is invalid, or if the field is fixed: hop-by-hop, framing, condition and validator fields, and those
    /// that the proxy sets.
    pub fn remove(mut self, name: &str) -> Result<Self, InvalidUpstream> {
        self.remove.push(self.name(name)?);
        Ok(self)
    }

    /// Sets a field to one value.
    ///
    /// # Errors
    /// Same as [`remove`](Self::remove); also fails if the value is invalid.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, InvalidUpstream> {
        self.set.push((self.name(name)?, parse_value(name, value)?));
        Ok(self)
    }

    /// Adds a line with this value.
    ///
    /// # Errors
    /// Same as [`set`](Self::set).
    pub fn add(mut self, name: &str, value: &str) -> Result<Self, InvalidUpstream> {
        self.add.push((self.name(name)?, parse_value(name, value)?));
        Ok(self)
    }

    /// Returns the fields that these rules remove or replace, in the spelling of the rules.
    pub fn replaced(&self) -> impl Iterator<Item = &HeaderName> {
        self.remove
            .iter()
            .chain(self.set.iter().map(|(name, _)| name))
    }

    /// Removes the fields that these rules remove or replace.
    pub(crate) fn remove_from(&self, headers: &mut HeaderMap) {
        let is_replaced = |name: &&HeaderName| self.replaced().any(|rule| is_spelling(name, rule));
        for name in headers
            .keys()
            .filter(is_replaced)
            .cloned()
            .collect::<Vec<_>>()
        {
            headers.remove(name);
        }
    }

    /// Changes the fields of a message.
    pub fn apply(&self, headers: &mut HeaderMap) {
        self.remove_from(headers);
        for (name, value) in self.set.iter().chain(&self.add) {
            headers.append(name, value.clone());
        }
    }

    fn name(&self, text: &str) -> Result<HeaderName, InvalidUpstream> {
        let name =
            HeaderName::from_bytes(text.as_bytes()).map_err(|_| InvalidUpstream::field(text))?;
        let own: &[HeaderName] = match self.messages {
            Messages::Requests => &OF_REQUESTS,
            Messages::Responses => &OF_RESPONSES,
        };
        let is_fixed = COMMON
            .iter()
            .chain(own)
            .chain(&hop_by_hop::NAMES)
            .any(|fixed| is_spelling(&name, fixed));
        let describes = self.messages == Messages::Requests && forwarded::describes_client(&name);
        if is_fixed || describes {
            Err(InvalidUpstream::fixed_field(text))
        } else {
            Ok(name)
        }
    }
}

fn parse_value(name: &str, value: &str) -> Result<HeaderValue, InvalidUpstream> {
    HeaderValue::from_str(value).map_err(|_| InvalidUpstream::value(name))
}

/// Returns `true` if servers with a CGI-like interface take both names for the same field.
fn is_spelling(name: &HeaderName, other: &HeaderName) -> bool {
    let (name, other) = (name.as_str().as_bytes(), other.as_str().as_bytes());
    let same = |(one, other): (&u8, &u8)| {
        one == other || !(one.is_ascii_alphanumeric() || other.is_ascii_alphanumeric())
    };
    name.len() == other.len() && name.iter().zip(other).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(headers: &HeaderMap) -> Vec<String> {
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect()
    }

    #[test]
    fn fields_are_removed_set_and_added_in_all_spellings() {
        let none = || FieldRules::new(Messages::Requests);
        let set = || none().set("X-Site", "shop").expect("a rule");
        for (rules, before, after) in [
            (
                none(),
                &["x-site: a", "x-site: b"][..],
                &["x-site: a", "x-site: b"][..],
            ),
            (
                none().remove("cookie").expect("a rule"),
                &["cookie: a", "cookie: b", "accept: c"],
                &["accept: c"],
            ),
            (set(), &[], &["x-site: shop"]),
            (
                set(),
                &["x-site: evil", "x_site: evil", "x.site: evil", "x-sites: c"],
                &["x-sites: c", "x-site: shop"],
            ),
            (
                none().add("x-site", "b").expect("a rule"),
                &["x-site: a"],
                &["x-site: a", "x-site: b"],
            ),
            (
                set()
                    .remove("x-site")
                    .and_then(|rules| rules.add("x-site", "b"))
                    .expect("a rule"),
                &["x-site: a"],
                &["x-site: shop", "x-site: b"],
            ),
        ] {
            let mut headers = HeaderMap::new();
            for line in before {
                let (name, value) = line.split_once(": ").expect("a line");
                headers.append(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
            }
            rules.apply(&mut headers);
            assert_eq!(lines(&headers), after, "{rules:?}");
        }
    }

    #[test]
    fn fields_that_frame_select_or_identify_are_fixed() {
        let both = [
            "connection",
            "Transfer-Encoding",
            "content-length",
            "content_length",
            "te",
            "upgrade",
            "via",
            "trailer",
        ];
        let requests = [
            "host",
            "Host",
            "if-match",
            "accept-encoding",
            "If_None_Match",
            "range",
            "x-forwarded-for",
            "x_real_ip",
            "forwarded",
        ];
        let responses = [
            "etag",
            "last-modified",
            "vary",
            "age",
            "date",
            "cache-status",
            "E-Tag:",
            "a b",
            "",
        ];
        for (messages, fixed) in [
            (Messages::Requests, &both[..]),
            (Messages::Responses, &both),
            (Messages::Requests, &requests),
            (Messages::Responses, &responses),
        ] {
            for name in fixed {
                let rules = || FieldRules::new(messages);
                assert!(rules().remove(name).is_err(), "{messages:?}: {name}");
                assert!(rules().set(name, "1").is_err(), "{messages:?}: {name}");
                assert!(rules().add(name, "1").is_err(), "{messages:?}: {name}");
            }
        }
        for name in ["cookie", "authorization", "accept-language", "x-site"] {
            assert!(
                FieldRules::new(Messages::Requests).remove(name).is_ok(),
                "{name}"
            );
        }
        for name in [
            "set-cookie",
            "cache-control",
            "strict-transport-security",
            "server",
            "location",
        ] {
            assert!(
                FieldRules::new(Messages::Responses).remove(name).is_ok(),
                "{name}"
            );
        }
        assert!(
            FieldRules::new(Messages::Requests)
                .set("x-site", "a\r\nhost: b")
                .is_err()
        );
    }
}
