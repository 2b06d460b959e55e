//! Validation of a stored response, and its update by a 304 or a response to HEAD (RFC 9111 §3.2, §4.3.4, §4.3.5).

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, Entry, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName};
use ifmatch_core::EntityTag;
use ifmatch_core::fields::hop_by_hop;

/// Replaces the client's conditions in a request with those that validate a stored response. Returns `false` if the stored
/// response has no validator.
///
/// The tag is sent unchanged, even if it is malformed.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::update::make_conditional;
///
/// let mut stored = HeaderMap::new();
/// assert!(!make_conditional(&mut HeaderMap::new(), &stored));
/// stored.insert(header::ETAG, HeaderValue::from_static("W/\"1\""));
/// let mut request = HeaderMap::new();
/// assert!(make_conditional(&mut request, &stored));
/// assert_eq!(request[header::IF_NONE_MATCH], "W/\"1\"");
/// ```
pub fn make_conditional(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    let (tag, date) = (stored.get(ETAG), stored.get(LAST_MODIFIED));
    if tag.is_none() && date.is_none() {
        return false;
    }
    request.remove(IF_NONE_MATCH);
    request.remove(IF_MODIFIED_SINCE);
    if let Some(tag) = tag {
        request.insert(IF_NONE_MATCH, tag.clone());
    }
    if let Some(date) = date {
        request.insert(IF_MODIFIED_SINCE, date.clone());
    }
    true
}

/// Returns `true` if a 304 refers to the stored response that the request named, so this may be reused (§4.3.3, §4.3.4).
///
/// `If-None-Match` compares weakly (RFC 9110 §13.1.2), so the 304's tag must match the stored response's weakly.
/// Without a tag, the dates must agree. A 304 without validators refers to the stored response.
///
/// A weak tag in the store and a strong one in the 304 are usual: a server that compresses weakens the tag of the 200, and answers
/// with the tag of the file. [`freshen`] then keeps the stored tag.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::update::is_about;
///
/// let tagged = |tag| HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static(tag))]);
/// assert!(is_about(&tagged("\"1\""), &tagged("\"1\"")));
/// assert!(is_about(&tagged("\"1\""), &tagged("W/\"1\"")));
/// assert!(!is_about(&tagged("\"2\""), &tagged("W/\"1\"")));
/// assert!(is_about(&HeaderMap::new(), &tagged("\"1\"")));
/// ```
pub fn is_about(not_modified: &HeaderMap, stored: &HeaderMap) -> bool {
    match (not_modified.get(ETAG), stored.get(ETAG)) {
        (Some(new), Some(old)) => {
            let tags = (EntityTag::from_header(new), EntityTag::from_header(old));
            new == old || matches!(tags, (Ok(new), Ok(old)) if new.weak_eq(&old))
        }
        (Some(_), None) => false,
        (None, _) => match (not_modified.get(LAST_MODIFIED), stored.get(LAST_MODIFIED)) {
            (Some(new), Some(old)) => new == old,
            (Some(_), None) | (None, _) => true,
        },
    }
}

/// Returns `true` if the tag, date and length in a response to HEAD agree with the stored response (§4.3.5).
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::update::head_agrees;
///
/// let length = |length| HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from_static(length))]);
/// assert!(head_agrees(&length("5"), &HeaderMap::new(), 5));
/// assert!(!head_agrees(&length("6"), &HeaderMap::new(), 5));
/// ```
pub fn head_agrees(head: &HeaderMap, stored: &HeaderMap, len: u64) -> bool {
    let same = |name: HeaderName| {
        head.get(&name)
            .is_none_or(|value| stored.get(&name) == Some(value))
    };
    let length = head
        .get(CONTENT_LENGTH)
        .is_none_or(|value| value.as_bytes() == len.to_string().as_bytes());
    same(ETAG) && same(LAST_MODIFIED) && length
}

/// Returns `true` if a response to HEAD confirms the stored content: both have the same tag or modification date, or
/// neither has any.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::update::shares_validator;
///
/// let tagged = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("\"1\""))]);
/// assert!(shares_validator(&tagged, &tagged));
/// assert!(!shares_validator(&HeaderMap::new(), &tagged));
/// assert!(shares_validator(&HeaderMap::new(), &HeaderMap::new()));
/// ```
pub fn shares_validator(head: &HeaderMap, stored: &HeaderMap) -> bool {
    let same = |name: HeaderName| {
        head.get(&name)
            .is_some_and(|value| stored.get(&name) == Some(value))
    };
    let has_none =
        |headers: &HeaderMap| !headers.contains_key(ETAG) && !headers.contains_key(LAST_MODIFIED);
    same(ETAG) || same(LAST_MODIFIED) || has_none(head) && has_none(stored)
}

/// Updates stored header fields from a newer response (§3.2).
///
/// Each field of the newer response replaces the stored one, except fields that describe the length, range and coding of
/// the stored bytes, and fields that are never stored. A weak stored tag isn't replaced by the strong one of the same name: that is
/// the tag of other bytes, such as those before compression. With it, a client would be told that it has these, and could join parts
/// of both.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::update::freshen;
///
/// let mut stored = HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from_static("5"))]);
/// let mut newer = HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from_static("0"))]);
/// newer.insert("x-a", HeaderValue::from_static("b"));
/// freshen(&mut stored, &newer);
/// assert_eq!(stored[header::CONTENT_LENGTH], "5");
/// assert_eq!(stored["x-a"], "b");
/// stored.insert(header::ETAG, HeaderValue::from_static("W/\"1\""));
/// freshen(&mut stored, &HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("\"1\""))]));
/// assert_eq!(stored[header::ETAG], "W/\"1\"");
/// ```
pub fn freshen(stored: &mut HeaderMap, newer: &HeaderMap) {
    let mut newer = newer.clone();
    hop_by_hop::remove(&mut newer);
    for name in [
        AGE,
        CONTENT_LENGTH,
        CONTENT_ENCODING,
        CONTENT_RANGE,
        HeaderName::from_static("content-digest"),
    ] {
        newer.remove(name);
    }
    if is_stronger(&newer, stored) {
        newer.remove(ETAG);
    }
    for name in newer.keys() {
        let mut lines = newer.get_all(name).iter();
        if let (Some(first), Ok(entry)) = (lines.next(), stored.try_entry(name)) {
            match entry {
                Entry::Occupied(mut entry) => drop(entry.insert(first.clone())),
                Entry::Vacant(entry) => drop(entry.try_insert(first.clone())),
            }
        }
        for line in lines {
            drop(stored.try_append(name, line.clone()));
        }
    }
}

/// Returns `true` if the newer fields have a strong tag, and the stored ones the weak one of the same name.
fn is_stronger(newer: &HeaderMap, stored: &HeaderMap) -> bool {
    let tag = |headers: &HeaderMap| {
        headers
            .get(ETAG)
            .and_then(|tag| EntityTag::from_header(tag).ok())
    };
    matches!((tag(newer), tag(stored)), (Some(new), Some(old)) if new.weak_eq(&old) && old.is_weak() && !new.is_weak())
}
