//! The serialised forms, which registers keep for years.

use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::{ContentHash, Hasher, TagFormat};

#[test]
fn a_tag_is_its_length_and_its_bytes() {
    let tag = EntityTag::parse(b"W/\"\xe9\"").unwrap();
    let stored = postcard::to_allocvec(&tag).unwrap();
    assert_eq!(stored, b"\x05W/\"\xe9\"");
    assert_eq!(postcard::from_bytes::<EntityTag>(&stored).unwrap(), tag);
    let json = serde_json::to_string(&tag).unwrap();
    assert_eq!(serde_json::from_str::<EntityTag>(&json).unwrap(), tag);
}

#[test]
fn a_stored_tag_is_parsed_again() {
    for stored in [
        &b"\x01a"[..],
        b"\x00",
        b"\x03\"a",
        b"\x05\"a\nb\"",
        b"\x05\"a\"b\"",
    ] {
        assert!(
            postcard::from_bytes::<EntityTag>(stored).is_err(),
            "{stored:?}"
        );
    }
}

#[test]
fn a_stored_date_stays_within_the_four_digit_years() {
    for (seconds, date) in [
        (i64::MAX, HttpDate::MAX),
        (i64::MIN, HttpDate::MIN),
        (-1, HttpDate::from_unix(-1)),
    ] {
        let stored = postcard::to_allocvec(&seconds).unwrap();
        assert_eq!(postcard::from_bytes::<HttpDate>(&stored).unwrap(), date);
    }
}

#[test]
fn a_timestamp_is_its_microseconds() {
    let stored = postcard::to_allocvec(&Timestamp::from_micros(300)).unwrap();
    assert_eq!(stored, postcard::to_allocvec(&300_u64).unwrap());
}

#[test]
fn a_hash_is_the_number_of_its_format_and_its_bytes() {
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let stored = postcard::to_allocvec(&ContentHash::of(b"hello")).unwrap();
    assert_eq!(hex::encode(stored), format!("00{sha256}"));
    let mut hasher = Hasher::new(TagFormat::Sha256Truncated);
    hasher.update(b"hello");
    let short = hasher.finish();
    let stored = postcard::to_allocvec(&short).unwrap();
    assert_eq!(hex::encode(&stored), format!("01{sha256}"));
    assert_eq!(postcard::from_bytes::<ContentHash>(&stored).unwrap(), short);
    assert_ne!(short.content_tag(), ContentHash::of(b"hello").content_tag());
    assert_eq!(short.repr_digest(), ContentHash::of(b"hello").repr_digest());
}

#[test]
fn an_unknown_format_is_refused() {
    let mut stored = postcard::to_allocvec(&ContentHash::of(b"hello")).unwrap();
    stored[0] = 9;
    assert!(postcard::from_bytes::<ContentHash>(&stored).is_err());
}

#[test]
#[cfg(feature = "blake3")]
fn a_blake3_hash_has_a_format_of_its_own_and_no_registered_digest() {
    let mut hasher = Hasher::new(TagFormat::Blake3);
    hasher.update(b"");
    let hash = hasher.finish();
    assert_eq!(
        hash.hex(),
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    );
    assert_eq!(postcard::to_allocvec(&hash).unwrap()[0], 2);
    assert_eq!(hash.repr_digest(), None);
}
