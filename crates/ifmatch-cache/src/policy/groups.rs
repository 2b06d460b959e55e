//! Cache groups (RFC 9875): responses of one origin that are invalidated together.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};

/// `Cache-Groups`: the groups of a response.
pub const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
/// `Cache-Group-Invalidation`: the groups that an unsafe request invalidates.
pub const CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// Maximum number of groups per response. §2 requires 32.
pub const MAX_GROUPS: usize = 64;
/// Maximum length of a name in bytes. §2 requires 32. Longer names are ignored.
pub const MAX_NAME: usize = 256;

/// Parses a list of group names. Returns none if the field is not a list of strings (RFC 9651 §3.1, §3.3.3). Parameters
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
    let lines: Vec<&[u8]> = headers.get_all(field).iter().map(HeaderValue::as_bytes).collect();
    let list = Parser::new(&lines.join(&b", "[..])).parse::<List>().unwrap_or_default();
    let names = list.iter().map(name).collect::<Option<Vec<_>>>().unwrap_or_default();
    names.into_iter().filter(|name| name.len() <= MAX_NAME).take(MAX_GROUPS).collect()
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
