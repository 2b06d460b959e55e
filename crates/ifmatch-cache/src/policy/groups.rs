//! Cache groups (RFC 9875) and surrogate keys: responses of one origin that are invalidated together.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};

/// `Cache-Groups`: the groups of a response.
pub const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
/// `Cache-Group-Invalidation`: the groups that an unsafe request invalidates.
pub const CACHE_GROUP_INVALIDATION: HeaderName =
    HeaderName::from_static("cache-group-invalidation");

/// `Surrogate-Key`, used by Fastly and Varnish's xkey: groups, separated by blanks.
const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");
/// `Cache-Tag`, used by Cloudflare and Akamai: groups, separated by commas.
const CACHE_TAG: HeaderName = HeaderName::from_static("cache-tag");

/// Maximum number of groups per response. §2 requires 32.
pub const MAX_GROUPS: usize = 1024;
/// Maximum length of a name in bytes. §2 requires 32.
pub const MAX_NAME: usize = 1024;

/// Returns the groups of a response: those in `Cache-Groups`, `Surrogate-Key` and `Cache-Tag`. Returns `None` if they are too many,
/// or if one is too long: an invalidation of the others would miss the response.
///
/// ```
/// use http::HeaderMap;
/// use ifmatch_cache::policy::groups;
///
/// let mut headers = HeaderMap::new();
/// headers.append("surrogate-key", "post-1  blog".parse()?);
/// headers.append("cache-tag", "eu, two words,".parse()?);
/// assert_eq!(groups::of(&headers), Some(vec!["post-1".into(), "blog".into(), "eu".into(), "two words".into()]));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn of(headers: &HeaderMap) -> Option<Vec<Box<str>>> {
    let mut all = names(headers, &CACHE_GROUPS);
    for (field, separators) in [(&SURROGATE_KEY, &[' ', '\t'][..]), (&CACHE_TAG, &[','])] {
        for line in headers.get_all(field) {
            let line = String::from_utf8_lossy(line.as_bytes());
            all.extend(
                line.split(separators)
                    .map(str::trim)
                    .filter(|name| !name.is_empty())
                    .map(Box::from),
            );
        }
    }
    (all.len() <= MAX_GROUPS && all.iter().all(|name| name.len() <= MAX_NAME)).then_some(all)
}

/// Parses a list of group names. Returns none if the field isn't a list of strings (RFC 9651 §3.1, §3.3.3). Parameters
/// are ignored.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::groups::{CACHE_GROUPS, names};
///
/// let mut headers = HeaderMap::new();
/// headers.append(CACHE_GROUPS, HeaderValue::from_static("\"scripts\", \"eu\";x=1"));
/// assert_eq!(names(&headers, &CACHE_GROUPS), ["scripts".into(), "eu".into()]);
/// headers.append(CACHE_GROUPS, HeaderValue::from_static("token"));
/// assert!(names(&headers, &CACHE_GROUPS).is_empty());
/// ```
pub fn names(headers: &HeaderMap, field: &HeaderName) -> Vec<Box<str>> {
    if !headers.contains_key(field) {
        return Vec::new();
    }
    let lines: Vec<&[u8]> = headers
        .get_all(field)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let list = Parser::new(&lines.join(&b", "[..]))
        .parse::<List>()
        .unwrap_or_default();
    list.iter()
        .map(name)
        .collect::<Option<Vec<_>>>()
        .unwrap_or_default()
}

fn name(member: &ListEntry) -> Option<Box<str>> {
    match member {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::String(name) => Some(name.as_str().into()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    }
}
