//! Tags behind a compression layer outside this one. That layer changes the bytes and keeps the tag, so the tag gets a
//! suffix for the codings that the client accepts.

use http::header::{ACCEPT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::tag::TagList;

/// The beginning of the suffix, followed by hexadecimal digits.
const MARK: &str = "-ae";
/// Number of these digits.
const DIGITS: usize = 8;

/// Returns the tag to send to a client with this `Accept-Encoding`. It has no suffix if the client accepts only identity.
pub(crate) fn shown(tag: &EntityTag, request: &HeaderMap) -> EntityTag {
    let suffixed = suffix(request).map(|suffix| tag.with_suffix(&suffix));
    suffixed.and_then(Result::ok).unwrap_or_else(|| tag.clone())
}

/// Removes the suffixes from the tags in the conditions of a write: each names the same version.
pub(crate) fn strip_suffixes(mut conditions: Preconditions) -> Preconditions {
    for list in [&mut conditions.if_match, &mut conditions.if_none_match] {
        if let Some(TagList::Tags(tags)) = list {
            tags.iter_mut().for_each(strip_suffix);
        }
    }
    conditions
}

/// Adds `Accept-Encoding` to `Vary`. The compression layer itself does so on all responses but a 304.
pub(crate) fn add_vary(response: &mut HeaderMap) {
    let fields = response
        .get_all(VARY)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let mut fields = fields.map(<[u8]>::trim_ascii);
    if !fields.any(|field| field == b"*" || field.eq_ignore_ascii_case(b"accept-encoding")) {
        response.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

fn strip_suffix(tag: &mut EntityTag) {
    let bytes = tag.as_bytes();
    let Some(at) = bytes.len().checked_sub(MARK.len() + DIGITS + 1) else {
        return;
    };
    let (base, suffix) = bytes.split_at(at);
    let digits = suffix
        .strip_prefix(MARK.as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\""));
    if digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        && let Ok(stripped) = EntityTag::parse(&[base, b"\""].concat())
    {
        *tag = stripped;
    }
}

/// Requests with the same suffix get the same coding. Returns `None` if only identity is accepted.
fn suffix(request: &HeaderMap) -> Option<String> {
    let mut accepted = Vec::new();
    for line in request.get_all(ACCEPT_ENCODING) {
        let lower = String::from_utf8_lossy(line.as_bytes()).to_ascii_lowercase();
        accepted.extend(
            lower
                .split(',')
                .map(normalize)
                .filter(|item| !item.is_empty()),
        );
    }
    let admits = |item: &String| {
        let (name, weight) = item.split_once(";q=").unwrap_or((item, "1"));
        name != "identity" && weight.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
    };
    if !accepted.iter().any(admits) {
        return None;
    }
    accepted.sort_unstable();
    accepted.dedup();
    let hex = ContentHash::of(accepted.join(",").as_bytes()).hex();
    Some(format!("{MARK}{}", &hex[..DIGITS]))
}

fn normalize(item: &str) -> String {
    item.chars()
        .filter(|character| !character.is_ascii_whitespace())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_for(accept: &'static str) -> EntityTag {
        let mut request = HeaderMap::new();
        request.insert(ACCEPT_ENCODING, HeaderValue::from_static(accept));
        shown(&EntityTag::strong("v1").unwrap(), &request)
    }

    #[test]
    fn a_client_that_accepts_only_identity_gets_the_plain_tag() {
        for accept in ["", "identity", "gzip;q=0", "gzip; q=0.000, identity", ","] {
            assert_eq!(
                shown_for(accept),
                EntityTag::strong("v1").unwrap(),
                "{accept:?}"
            );
        }
    }

    #[test]
    fn each_preference_gets_its_own_suffix_of_the_same_tag() {
        let tags = [
            "gzip",
            "br",
            "gzip, br",
            "gzip;q=0.5, br",
            "*",
            "gzip, identity;q=0",
        ]
        .map(shown_for);
        for (at, tag) in tags.iter().enumerate() {
            assert!(!tags[..at].contains(tag), "{tag}");
            let if_match = Some(TagList::Tags(vec![tag.clone()]));
            let stripped = strip_suffixes(Preconditions {
                if_match,
                ..Preconditions::default()
            });
            assert_eq!(
                stripped.if_match,
                Some(TagList::Tags(vec![EntityTag::strong("v1").unwrap()]))
            );
        }
        assert_eq!(shown_for("br , gzip"), shown_for("GZIP,br"));
    }

    #[test]
    fn a_tag_without_a_valid_suffix_is_unchanged() {
        for text in ["-ae1234567", "v-ae1234567g", "v-af12345678", ""] {
            let mut tag = EntityTag::strong(text).unwrap();
            strip_suffix(&mut tag);
            assert_eq!(tag, EntityTag::strong(text).unwrap());
        }
    }
}
