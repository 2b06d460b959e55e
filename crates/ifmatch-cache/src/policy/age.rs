//! The age of a response (RFC 9111 §4.2.3, §5.1).

use std::time::Duration;

use http::HeaderMap;
use http::header::{AGE, DATE};
use ifmatch_core::date::{HttpDate, Timestamp};

use super::fields::{self, seconds, split};

/// Parses the first value of `Age` (§5.1). Returns `None` if it is absent or malformed.
///
/// ```
/// use std::time::Duration;
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::age::age_field;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::AGE, HeaderValue::from_static("7200, 0"));
/// assert_eq!(age_field(&headers), Some(Duration::from_secs(7200)));
/// headers.insert(header::AGE, HeaderValue::from_static("-1"));
/// assert_eq!(age_field(&headers), None);
/// ```
pub fn age_field(headers: &HeaderMap) -> Option<Duration> {
    seconds(split(headers.get(AGE)?.as_bytes()).next()?)
}

/// Returns the age of a response on arrival (`corrected_initial_age`, §4.2.3), given the times when its request was sent
/// and when its head arrived.
///
/// This is the larger of the age by `Date`, and `Age` plus the duration of the exchange.
///
/// ```
/// use std::time::Duration;
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::age::initial_age;
/// use ifmatch_core::date::Timestamp;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::AGE, HeaderValue::from_static("10"));
/// let (asked, came) = (Timestamp::from_micros(0), Timestamp::from_micros(2_000_000));
/// assert_eq!(initial_age(&headers, asked, came), Duration::from_secs(12));
/// ```
pub fn initial_age(headers: &HeaderMap, requested: Timestamp, received: Timestamp) -> Duration {
    let stated = age_field(headers)
        .unwrap_or_default()
        .saturating_add(requested.until(received));
    stated.max(apparent(headers, received))
}

/// Returns the age by `Date`, in whole seconds.
fn apparent(headers: &HeaderMap, received: Timestamp) -> Duration {
    let date = fields::date(headers, DATE).map(HttpDate::unix);
    let age = date.map_or(0, |date| unix(received).saturating_sub(date));
    Duration::from_secs(u64::try_from(age).unwrap_or_default())
}

/// Returns whole seconds since the Unix epoch.
pub(crate) fn unix(moment: Timestamp) -> i64 {
    (moment.micros() / 1_000_000).cast_signed()
}
