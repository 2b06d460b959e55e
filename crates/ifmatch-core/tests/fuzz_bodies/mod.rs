//! The bodies of the fuzz targets in `fuzz/`. Tests run them on seeds and random bytes.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseId;
use ifmatch_core::precondition::{Preconditions, Validators, Verdict};
use ifmatch_core::range::multipart::Multipart;
use ifmatch_core::range::{Limits, Selection};
use ifmatch_core::record::Record;
use ifmatch_core::tag::TagList;

/// A list of tags with field lines separated by line feeds. Parsed lists survive a round trip, and unreadable or unmatched
/// lists fail every write.
pub(crate) fn tag_list(data: &[u8]) {
    let Some(headers) = lines(&header::IF_MATCH, data) else {
        return;
    };
    let Some(list) = TagList::from_headers(&headers, header::IF_MATCH) else {
        return;
    };
    if let TagList::Tags(tags) = &list {
        assert!(tags.len() <= TagList::MAX_TAGS);
        let written: Vec<_> = tags.iter().map(EntityTag::as_bytes).collect();
        let again =
            lines(&header::IF_MATCH, &written.join(&b", "[..])).expect("tags are header values");
        assert_eq!(
            TagList::from_headers(&again, header::IF_MATCH).as_ref(),
            Some(&list)
        );
        assert!(
            tags.iter()
                .all(|tag| EntityTag::parse(tag.as_bytes()).as_ref() == Ok(tag))
        );
        assert!(
            tags.iter()
                .all(|tag| tag.is_weak() || list.matches_strong(std::slice::from_ref(tag)))
        );
    }
    let foreign = [EntityTag::weak("never").expect("a tag")];
    let current = Validators {
        tags: &foreign,
        last_modified: None,
    };
    let verdict = Preconditions::from_headers(&headers).evaluate(&Method::PUT, Some(&current));
    assert_eq!(verdict == Verdict::Proceed, list == TagList::Any);
}

/// A date. Parsed dates survive a round trip.
pub(crate) fn http_date(data: &[u8]) {
    let Some(read) = HttpDate::parse(data) else {
        return;
    };
    assert!((HttpDate::MIN..=HttpDate::MAX).contains(&read));
    let written = read.to_header();
    assert_eq!(written.len(), 29);
    assert_eq!(HttpDate::parse(written.as_bytes()), Some(read));
}

/// A range header, for a representation with the length given by the first eight bytes. All parts lie within it and don't
/// overlap, and the multipart framing has the right length.
pub(crate) fn range(data: &[u8]) {
    let Some((len, value)) = data.split_first_chunk() else {
        return;
    };
    let len = u64::from_le_bytes(*len);
    let Selection::Parts(parts) = Selection::parse(value, len, Limits::default()) else {
        return;
    };
    assert!(!parts.is_empty() && parts.len() <= Limits::default().max_ranges);
    assert!(
        parts
            .iter()
            .all(|part| part.start() <= part.end() && part.end() < len)
    );
    for (at, part) in parts.iter().enumerate() {
        assert!(
            parts[at + 1..]
                .iter()
                .all(|other| other.end() < part.start() || part.end() < other.start())
        );
        assert_eq!(part.len(), part.end() - part.start() + 1);
    }
    let sent = parts
        .iter()
        .map(|part| part.len())
        .fold(0, u64::saturating_add);
    assert!(sent <= len);
    let multipart = Multipart::new("b", None, parts, len).expect("a boundary");
    let frame: usize = multipart.parts().map(|(header, _)| header.len()).sum();
    let frame = u64::try_from(frame + multipart.end().len()).expect("a length");
    assert_eq!(multipart.content_length(), sent.saturating_add(frame));
}

/// A digest header. Parsed digests survive a round trip.
pub(crate) fn digest_header(data: &[u8]) {
    let name = HeaderName::from_static("repr-digest");
    let Some(headers) = lines(&name, data) else {
        return;
    };
    if let Ok(Some(hash)) = ContentHash::from_headers(&headers, name.clone()) {
        let mut again = HeaderMap::new();
        again.insert(name.clone(), hash.repr_digest().expect("a SHA-256 hash"));
        assert_eq!(ContentHash::from_headers(&again, name), Ok(Some(hash)));
    }
}

/// A lease id. Parsed ids survive a round trip in every format and in upper case.
pub(crate) fn lease_id(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(id) = text.parse::<LeaseId>() else {
        return;
    };
    let hyphens = id.to_string();
    assert_eq!(hyphens.len(), 36);
    for written in [
        hyphens.replace('-', ""),
        format!("{{{hyphens}}}"),
        format!("({hyphens})"),
        hyphens,
    ] {
        assert_eq!(written.parse(), Ok(id));
        assert_eq!(written.to_uppercase().parse(), Ok(id));
    }
}

/// A stored record. Decoded records survive a round trip.
pub(crate) fn record_decode(data: &[u8]) {
    if let Ok(record) = Record::decode(data) {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

fn lines(name: &HeaderName, data: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        headers.append(name, HeaderValue::from_bytes(line).ok()?);
    }
    Some(headers)
}
