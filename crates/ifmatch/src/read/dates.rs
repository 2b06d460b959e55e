//! The modification dates of versions that this process has read from the register a short time ago.
//!
//! The tag of a response is its content's hash, or the service's own, so only the date is the register's. A read whose response has the
//! tag of a version in here needs no load:
//!
//! ```text
//!   reader here                    register              writers elsewhere
//!   load ────────────────────────▶ "a" of 12:00
//!   200, "a", 12:00
//!                                  "b" of 12:03 ◀─────── PUT
//!                                  "a" of 12:05 ◀─────── PUT, the same content again
//!   200, "a", 12:00: no load
//! ```
//!
//! The date is too early then, for ten seconds at most. That is safe: versions get ever later dates, so no other version has this one. A
//! condition on it fails, or sends the content again. A response with another tag asks the register, and so does a condition on a date.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::Variant;
use ifmatch_register::Key;

use crate::read::vary::VaryFields;

/// Time for which a date counts after the load.
const MAX_AGE: Duration = Duration::from_secs(10);
/// Maximum number of resources. If there are more, all are forgotten.
const CAPACITY: usize = 1_024;
/// Maximum number of representations of one resource. The oldest is dropped first.
const MAX_VARIANTS: usize = 8;

/// The date of a version.
#[derive(Debug)]
pub(crate) struct DatedVersion {
    vary: VaryFields,
    pub(crate) variant: Variant,
    pub(crate) tag: EntityTag,
    pub(crate) last_modified: HttpDate,
    /// The date as a header value.
    pub(crate) value: HeaderValue,
    /// The time of the load.
    at: Timestamp,
}

impl DatedVersion {
    pub(crate) fn new(
        vary: VaryFields,
        variant: Variant,
        tag: EntityTag,
        last_modified: HttpDate,
        at: Timestamp,
    ) -> Self {
        let value = last_modified.to_header();
        Self {
            vary,
            variant,
            tag,
            last_modified,
            value,
            at,
        }
    }
}

/// The dates of versions.
#[derive(Debug, Default)]
pub(crate) struct VersionDates {
    known: Mutex<HashMap<Key, Vec<Arc<DatedVersion>>>>,
    is_used: AtomicBool,
}

impl VersionDates {
    /// Returns the date of the version of the representation that a request selects, if that is all that its response may need of the
    /// record.
    pub(crate) fn find(
        &self,
        key: &Key,
        head: &Parts,
        now: Timestamp,
    ) -> Option<Arc<DatedVersion>> {
        if !self.is_used.load(Ordering::Acquire) || compares_dates(&head.headers) {
            return None;
        }
        let known = self.known();
        let selects = |dated: &&Arc<DatedVersion>| {
            // The time of a register's engine may have gone back since.
            let is_recent = dated.at <= now && now < dated.at.saturating_add(MAX_AGE);
            is_recent
                && dated.vary.select(head.uri.query(), &head.headers).as_ref()
                    == Some(&dated.variant)
        };
        known.get(key)?.iter().rev().find(selects).cloned()
    }

    /// Takes note of a date.
    pub(crate) fn note(&self, key: &Key, dated: DatedVersion) {
        self.is_used.store(true, Ordering::Release);
        let mut known = self.known();
        if known.len() >= CAPACITY && !known.contains_key(key) {
            known.clear();
        }
        let versions = known.entry(key.clone()).or_default();
        versions.retain(|other| other.vary == dated.vary && other.variant != dated.variant);
        if versions.len() >= MAX_VARIANTS {
            versions.remove(0);
        }
        versions.push(Arc::new(dated));
    }

    pub(crate) fn forget(&self, key: &Key) {
        if self.is_used.load(Ordering::Acquire) {
            self.known().remove(key);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Vec<Arc<DatedVersion>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if the response depends on the date of the current version (RFC 9110 §13.2.2): a condition on a tag
/// takes precedence.
fn compares_dates(headers: &HeaderMap) -> bool {
    let has = |name| headers.contains_key(name);
    let is_date = |value: &HeaderValue| !value.as_bytes().ends_with(b"\"");
    (has(IF_MODIFIED_SINCE) && !has(IF_NONE_MATCH))
        || (has(IF_UNMODIFIED_SINCE) && !has(IF_MATCH))
        || headers.get(IF_RANGE).is_some_and(is_date)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/a");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_date_counts_for_a_short_time_and_for_the_representation_that_it_is_of() {
        let (dates, key, at) = (
            VersionDates::default(),
            Key::new("a").unwrap(),
            Timestamp::from_micros(1_000_000_000),
        );
        let mut headers = HeaderMap::new();
        headers.insert("vary", HeaderValue::from_static("accept"));
        let vary = VaryFields::of(&headers).unwrap();
        let tag = |name: &str| EntityTag::strong(name).unwrap();
        for accept in ["text/html", "text/plain"] {
            let variant = vary
                .select(None, &head(&[("accept", accept)]).headers)
                .unwrap();
            dates.note(
                &key,
                DatedVersion::new(
                    vary.clone(),
                    variant,
                    tag(&accept[5..]),
                    HttpDate::from_unix(7),
                    at,
                ),
            );
        }
        let found = |fields: &[(&str, &str)], now| {
            dates
                .find(&key, &head(fields), now)
                .map(|dated| dated.tag.clone())
        };
        let html = ("accept", "text/html");
        assert_eq!(found(&[html], at), Some(tag("html")));
        assert_eq!(found(&[("accept", "text/plain")], at), Some(tag("plain")));
        assert_eq!(found(&[("accept", "image/png")], at), None);
        assert_eq!(found(&[html], at.saturating_add(MAX_AGE)), None, "too old");
        assert_eq!(
            found(&[html], Timestamp::from_micros(0)),
            None,
            "the clock has gone back"
        );
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (name, beside) in [
            ("if-modified-since", "if-none-match"),
            ("if-unmodified-since", "if-match"),
        ] {
            assert_eq!(found(&[html, (name, date)], at), None, "{name}");
            assert_eq!(
                found(&[html, (name, date), (beside, "\"x\"")], at),
                Some(tag("html")),
                "{beside} comes first"
            );
        }
        assert_eq!(found(&[html, ("if-range", date)], at), None);
        assert_eq!(found(&[html, ("if-range", "\"x\"")], at), Some(tag("html")));
        dates.forget(&key);
        assert_eq!(found(&[html], at), None);
    }

    #[test]
    fn the_number_of_resources_is_bounded() {
        let (dates, at) = (VersionDates::default(), Timestamp::from_micros(7));
        for number in 0..3 * CAPACITY {
            let tag = EntityTag::strong("x").unwrap();
            let known = DatedVersion::new(
                VaryFields::default(),
                Variant::only(),
                tag,
                HttpDate::from_unix(7),
                at,
            );
            dates.note(&Key::new(number.to_string()).unwrap(), known);
            assert!(dates.known().len() <= CAPACITY);
        }
    }
}
