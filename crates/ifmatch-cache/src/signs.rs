//! What the fields of a request say about how to treat it, seen in one pass over them.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, PRAGMA, RANGE, TRANSFER_ENCODING, UPGRADE,
};
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::obeyed;

/// Which signs there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs(u8);

/// What a field is a sign of.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Sign {
    /// `Connection` names fields that are for this server only.
    Connection = 1,
    /// Another protocol is wanted.
    Upgrade = 1 << 1,
    /// Two conditions are for the origin (RFC 9111 §4.3.2). Content might select what the key does not tell apart.
    ForOrigin = 1 << 2,
    /// There are conditions that a cache evaluates.
    Condition = 1 << 3,
    Range = 1 << 4,
    Authorization = 1 << 5,
    /// There are directives for caches.
    Directives = 1 << 6,
    /// Origins are known to [obey](obeyed) such a field.
    Obeyed = 1 << 7,
}

impl Signs {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let signs = headers.iter().filter_map(|(name, value)| sign(name, value));
        Self(signs.fold(0, |all, sign| all | sign as u8))
    }

    pub(crate) fn have(self, sign: Sign) -> bool {
        self.0 & sign as u8 != 0
    }
}

fn sign(name: &HeaderName, value: &HeaderValue) -> Option<Sign> {
    match *name {
        CONNECTION => Some(Sign::Connection),
        UPGRADE => Some(Sign::Upgrade),
        IF_MATCH | IF_UNMODIFIED_SINCE | TRANSFER_ENCODING => Some(Sign::ForOrigin),
        CONTENT_LENGTH => (value != "0").then_some(Sign::ForOrigin),
        IF_NONE_MATCH | IF_MODIFIED_SINCE => Some(Sign::Condition),
        RANGE => Some(Sign::Range),
        AUTHORIZATION => Some(Sign::Authorization),
        CACHE_CONTROL | PRAGMA => Some(Sign::Directives),
        _ => obeyed::is_obeyed(name.as_str()).then_some(Sign::Obeyed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_hides_another() {
        let fields = [
            ("connection", "x", Some(Sign::Connection)),
            ("upgrade", "websocket", Some(Sign::Upgrade)),
            ("if-match", "*", Some(Sign::ForOrigin)),
            ("if-unmodified-since", "x", Some(Sign::ForOrigin)),
            ("transfer-encoding", "chunked", Some(Sign::ForOrigin)),
            ("content-length", "1", Some(Sign::ForOrigin)),
            ("content-length", "0", None),
            ("if-none-match", "*", Some(Sign::Condition)),
            ("if-modified-since", "x", Some(Sign::Condition)),
            ("range", "x", Some(Sign::Range)),
            ("authorization", "x", Some(Sign::Authorization)),
            ("cache-control", "x", Some(Sign::Directives)),
            ("pragma", "x", Some(Sign::Directives)),
            ("x-forwarded-host", "x", Some(Sign::Obeyed)),
            ("x_forwarded_host", "x", Some(Sign::Obeyed)),
            ("forwarded", "x", Some(Sign::Obeyed)),
            ("x-forwarded-for", "x", None),
            ("host", "x", None),
        ];
        let add = |headers: &mut HeaderMap, name: &'static str, value| {
            headers.append(name, HeaderValue::from_static(value));
        };
        for (name, value, sign) in fields {
            let expected = sign.map_or(0, |sign| sign as u8);
            for (other, its, another) in fields {
                let mut headers = HeaderMap::new();
                add(&mut headers, name, value);
                add(&mut headers, other, its);
                let both = expected | another.map_or(0, |sign| sign as u8);
                assert_eq!(Signs::of(&headers), Signs(both), "{name} {other}");
            }
        }
    }
}
