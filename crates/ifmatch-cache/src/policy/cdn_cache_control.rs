//! `CDN-Cache-Control` (RFC 9213 §3): directives for shared caches of this kind, in the place of `Cache-Control` and
//! `Expires`.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::cache_control::{Flag, ResponseDirectives, Scope};

/// The field's name.
pub const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// The directives that count for this cache, and whether they were addressed to it.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::cdn_cache_control::{CDN_CACHE_CONTROL, Governing};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("cache-control", HeaderValue::from_static("no-store"));
/// headers.insert(CDN_CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
/// let governing = Governing::of(&headers);
/// assert!(governing.targeted);
/// assert_eq!(governing.directives.max_age.map(|age| age.as_secs()), Some(60));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Governing {
    /// What is said.
    pub directives: ResponseDirectives,
    /// Said by `CDN-Cache-Control`: then `Cache-Control` and `Expires` do not count.
    pub targeted: bool,
}

impl Governing {
    /// Reads the header fields of a response.
    pub fn of(headers: &HeaderMap) -> Self {
        if let Some(directives) = directives(headers) {
            return Self { directives, targeted: true };
        }
        let mut directives = ResponseDirectives::from_headers(headers);
        // The permissions in a malformed field are unknown; its restrictions apply.
        headers.get_all(CDN_CACHE_CONTROL).iter().for_each(|line| directives.restrict(line.as_bytes()));
        Self { directives, targeted: false }
    }
}

/// Reads `CDN-Cache-Control`. None: it is absent, empty, no dictionary (RFC 9651 §3.2), or one of its known directives
/// has a value of the wrong type; then the field is to be ignored as a whole (RFC 9213 §2.1).
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::cdn_cache_control::{CDN_CACHE_CONTROL, directives};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(CDN_CACHE_CONTROL, HeaderValue::from_static("max-age=\"60\""));
/// assert_eq!(directives(&headers), None);
/// ```
pub fn directives(headers: &HeaderMap) -> Option<ResponseDirectives> {
    if !headers.contains_key(CDN_CACHE_CONTROL) {
        return None;
    }
    let lines: Vec<&[u8]> = headers.get_all(CDN_CACHE_CONTROL).iter().map(http::HeaderValue::as_bytes).collect();
    let dictionary = Parser::new(&lines.join(&b", "[..])).parse::<Dictionary>().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut told = ResponseDirectives::default();
    for (name, member) in &dictionary {
        hear(&mut told, name.as_str(), member)?;
    }
    Some(told)
}

/// Adds a directive. None: its value has the wrong type. Parameters say nothing.
fn hear(told: &mut ResponseDirectives, name: &str, member: &ListEntry) -> Option<()> {
    match name {
        "max-age" => told.max_age = Some(seconds(member)?),
        "s-maxage" => {
            told.s_maxage = Some(seconds(member)?);
            told.allow_sharing();
        }
        "stale-while-revalidate" => told.stale_while_revalidate = Some(seconds(member)?),
        "stale-if-error" => told.stale_if_error = Some(seconds(member)?),
        "no-cache" => told.no_cache = scope(member)?,
        "private" => told.private = scope(member)?,
        _ => {
            if let Some(flag) = Flag::named(name.as_bytes())
                && truth(member)?
            {
                told.set(flag);
            }
        }
    }
    Some(())
}

fn bare(member: &ListEntry) -> Option<&BareItem> {
    match member {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    }
}

/// An integer that is not negative.
fn seconds(member: &ListEntry) -> Option<Duration> {
    match bare(member)? {
        BareItem::Integer(seconds) => Some(Duration::from_secs(u64::try_from(i64::from(*seconds)).ok()?)),
        _ => None,
    }
}

fn truth(member: &ListEntry) -> Option<bool> {
    match bare(member)? {
        BareItem::Boolean(truth) => Some(*truth),
        _ => None,
    }
}

fn scope(member: &ListEntry) -> Option<Scope> {
    match bare(member)? {
        BareItem::Boolean(true) => Some(Scope::Response),
        BareItem::Boolean(false) => Some(Scope::Nothing),
        BareItem::String(names) => Some(Scope::of(Some(names.as_str().as_bytes()))),
        _ => None,
    }
}
