//! `CDN-Cache-Control` (RFC 9213 §3), which replaces `Cache-Control` and `Expires` for shared caches of this kind.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::Audience;
use super::cache_control::{Flag, ResponseDirectives, Scope};

/// The field's name.
pub const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// The directives that apply to this cache, and their source.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::Audience;
/// use ifmatch_cache::policy::cdn_cache_control::{CDN_CACHE_CONTROL, Governing};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("cache-control", HeaderValue::from_static("no-store"));
/// headers.insert(CDN_CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
/// let governing = Governing::of(&headers, Audience::Shared);
/// assert!(governing.targeted);
/// assert_eq!(governing.directives.max_age.map(|age| age.as_secs()), Some(60));
/// assert_eq!(Governing::of(&headers, Audience::Private).directives.max_age, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Governing {
    /// The directives.
    pub directives: ResponseDirectives,
    /// `true` if they come from `CDN-Cache-Control`, so `Cache-Control` and `Expires` don't apply.
    pub targeted: bool,
    /// This cache's users.
    pub audience: Audience,
}

impl Governing {
    /// Parses the header fields of a response, for a cache with these users.
    pub fn of(headers: &HeaderMap, audience: Audience) -> Self {
        if audience == Audience::Private {
            let directives = ResponseDirectives::from_headers(headers).for_one_user();
            return Self {
                directives,
                targeted: false,
                audience,
            };
        }
        if let Some(directives) = directives(headers) {
            return Self {
                directives,
                targeted: true,
                audience,
            };
        }
        let mut directives = ResponseDirectives::from_headers(headers);
        // The permissions in a malformed field are unknown; its restrictions apply.
        headers
            .get_all(CDN_CACHE_CONTROL)
            .iter()
            .for_each(|line| directives.restrict(line.as_bytes()));
        Self {
            directives,
            targeted: false,
            audience,
        }
    }
}

/// Parses `CDN-Cache-Control`. Returns `None` if the field must be ignored (RFC 9213 §2.1): it is absent, empty, not a
/// dictionary (RFC 9651 §3.2), or a known directive has a value of the wrong type.
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
    let lines: Vec<&[u8]> = headers
        .get_all(CDN_CACHE_CONTROL)
        .iter()
        .map(http::HeaderValue::as_bytes)
        .collect();
    let dictionary = Parser::new(&lines.join(&b", "[..]))
        .parse::<Dictionary>()
        .ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut parsed = ResponseDirectives::default();
    for (name, member) in &dictionary {
        apply(&mut parsed, name.as_str(), member)?;
    }
    Some(parsed)
}

/// Adds a directive. Returns `None` if its value has the wrong type. Parameters are ignored.
fn apply(parsed: &mut ResponseDirectives, name: &str, member: &ListEntry) -> Option<()> {
    match name {
        "max-age" => parsed.max_age = Some(seconds(member)?),
        "s-maxage" => {
            parsed.s_maxage = Some(seconds(member)?);
            parsed.allow_sharing();
        }
        "stale-while-revalidate" => parsed.stale_while_revalidate = Some(seconds(member)?),
        "stale-if-error" => parsed.stale_if_error = Some(seconds(member)?),
        "no-cache" => parsed.no_cache = scope(member)?,
        "private" => parsed.private = scope(member)?,
        _ => {
            if let Some(flag) = Flag::named(name.as_bytes())
                && truth(member)?
            {
                parsed.set(flag);
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

/// Returns a non-negative integer.
fn seconds(member: &ListEntry) -> Option<Duration> {
    match bare(member)? {
        BareItem::Integer(seconds) => Some(Duration::from_secs(
            u64::try_from(i64::from(*seconds)).ok()?,
        )),
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
