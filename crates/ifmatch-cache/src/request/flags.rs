//! Flags for the header fields of a request that affect its handling, collected in one pass.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, PRAGMA, RANGE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::request::unkeyed_inputs;

/// A set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFlags(u8);

/// A flag set by one or more header fields.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum RequestFlag {
    /// `Connection`, which may name fields that end at this hop.
    Connection = 1,
    /// `Upgrade`.
    Upgrade = 1 << 1,
    /// A condition for the origin alone (RFC 9111 §4.3.2), or content, which the cache key doesn't cover.
    OriginOnly = 1 << 2,
    /// A condition that a cache evaluates.
    Condition = 1 << 3,
    Range = 1 << 4,
    Authorization = 1 << 5,
    /// `Cache-Control` or `Pragma`.
    Directives = 1 << 6,
    /// An [unkeyed input](unkeyed_inputs).
    UnkeyedInput = 1 << 7,
}

impl RequestFlags {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let flags = headers.iter().filter_map(|(name, value)| flag(name, value));
        Self(flags.fold(0, |all, flag| all | flag as u8))
    }

    pub(crate) fn has(self, flag: RequestFlag) -> bool {
        self.0 & flag as u8 != 0
    }
}

fn flag(name: &HeaderName, value: &HeaderValue) -> Option<RequestFlag> {
    match *name {
        CONNECTION => Some(RequestFlag::Connection),
        UPGRADE => Some(RequestFlag::Upgrade),
        IF_MATCH | IF_UNMODIFIED_SINCE | TRANSFER_ENCODING => Some(RequestFlag::OriginOnly),
        CONTENT_LENGTH => (value != "0").then_some(RequestFlag::OriginOnly),
        IF_NONE_MATCH | IF_MODIFIED_SINCE => Some(RequestFlag::Condition),
        RANGE => Some(RequestFlag::Range),
        AUTHORIZATION => Some(RequestFlag::Authorization),
        CACHE_CONTROL | PRAGMA => Some(RequestFlag::Directives),
        _ => unkeyed_inputs::is_unkeyed_input(name.as_str()).then_some(RequestFlag::UnkeyedInput),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_hides_another() {
        let fields = [
            ("connection", "x", Some(RequestFlag::Connection)),
            ("upgrade", "websocket", Some(RequestFlag::Upgrade)),
            ("if-match", "*", Some(RequestFlag::OriginOnly)),
            ("if-unmodified-since", "x", Some(RequestFlag::OriginOnly)),
            (
                "transfer-encoding",
                "chunked",
                Some(RequestFlag::OriginOnly),
            ),
            ("content-length", "1", Some(RequestFlag::OriginOnly)),
            ("content-length", "0", None),
            ("if-none-match", "*", Some(RequestFlag::Condition)),
            ("if-modified-since", "x", Some(RequestFlag::Condition)),
            ("range", "x", Some(RequestFlag::Range)),
            ("authorization", "x", Some(RequestFlag::Authorization)),
            ("cache-control", "x", Some(RequestFlag::Directives)),
            ("pragma", "x", Some(RequestFlag::Directives)),
            ("x-forwarded-host", "x", Some(RequestFlag::UnkeyedInput)),
            ("x_forwarded_host", "x", Some(RequestFlag::UnkeyedInput)),
            ("forwarded", "x", Some(RequestFlag::UnkeyedInput)),
            ("x-forwarded-for", "x", None),
            ("host", "x", None),
        ];
        let add = |headers: &mut HeaderMap, name: &'static str, value| {
            headers.append(name, HeaderValue::from_static(value));
        };
        for (name, value, flag) in fields {
            let expected = flag.map_or(0, |flag| flag as u8);
            for (other, its, another) in fields {
                let mut headers = HeaderMap::new();
                add(&mut headers, name, value);
                add(&mut headers, other, its);
                let both = expected | another.map_or(0, |flag| flag as u8);
                assert_eq!(
                    RequestFlags::of(&headers),
                    RequestFlags(both),
                    "{name} {other}"
                );
            }
        }
    }
}
