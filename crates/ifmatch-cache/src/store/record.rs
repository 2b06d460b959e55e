//! The form of a stored response on disk, apart from its body. It has neither names nor a version: if it changes, so must the name of the
//! table of rows in `body::disk_index`, so that a new release doesn't read the rows of an older one.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use serde::{Deserialize, Serialize};

use crate::body::on_disk::WrittenBody;
use crate::policy::reuse::{StaleUse, Terms};
use crate::policy::vary::{Selection, Vary};
use crate::store::stored_response::{SavedHead, SecondaryKey, StoredHead};

/// Header fields, in order.
type SavedFields = Vec<(String, Vec<u8>)>;

/// A response as it is encoded, apart from the bytes of its body.
#[derive(Serialize, Deserialize)]
struct SavedRecord {
    status: u16,
    headers: SavedFields,
    variant: SavedVariant,
    terms: SavedTimes,
    always_validate: bool,
    stale_use: StaleUse,
    groups: Vec<String>,
    received: u64,
    sums: Vec<u32>,
    hash: Option<ContentHash>,
    trailers: Option<SavedFields>,
}

/// The requests that it answers.
#[derive(Serialize, Deserialize)]
struct SavedVariant {
    vary: Vec<String>,
    selection: Vec<Option<Vec<u8>>>,
    implicit_key: String,
}

/// The durations among its terms of use, and its age on arrival.
#[derive(Serialize, Deserialize)]
struct SavedTimes {
    lifetime: Duration,
    stale_since: Option<Duration>,
    while_revalidate: Duration,
    if_error: Duration,
    initial_age: Duration,
}

/// Encodes the head of a response, and what is known about its body.
pub(super) fn encode(meta: &StoredHead, body: WrittenBody) -> Vec<u8> {
    let Terms {
        lifetime,
        stale_since,
        always_validate,
        stale_use,
        while_revalidate,
        if_error,
    } = meta.terms;
    let record = SavedRecord {
        status: meta.status.as_u16(),
        headers: fields(&meta.headers),
        variant: variant(&meta.secondary_key),
        terms: SavedTimes {
            lifetime,
            stale_since,
            while_revalidate,
            if_error,
            initial_age: meta.initial_age,
        },
        always_validate,
        stale_use,
        groups: meta.groups.iter().map(ToString::to_string).collect(),
        received: meta.received.micros(),
        sums: body.sums,
        hash: body.hash,
        trailers: body.trailers.as_ref().map(fields),
    };
    // Encoding to memory doesn't fail.
    postcard::to_allocvec(&record).unwrap_or_default()
}

/// Decodes a head that is stored with this ordinal, and a body of this length. Returns `None` if it is malformed.
pub(super) fn decode(bytes: &[u8], began: u64, len: u64) -> Option<(StoredHead, WrittenBody)> {
    let record: SavedRecord = postcard::from_bytes(bytes).ok()?;
    let SavedTimes {
        lifetime,
        stale_since,
        while_revalidate,
        if_error,
        initial_age,
    } = record.terms;
    let SavedRecord {
        always_validate,
        stale_use,
        ..
    } = record;
    let SavedVariant {
        vary,
        selection,
        implicit_key,
    } = record.variant;
    let meta = StoredHead::restored(SavedHead {
        status: StatusCode::from_u16(record.status).ok()?,
        headers: headers(record.headers)?,
        secondary_key: SecondaryKey {
            vary: Vary::from_names(vary.iter().map(String::as_str))?,
            selection: Selection::from_values(selection.into_iter()),
            implicit_key: implicit_key.into(),
        },
        terms: Terms {
            lifetime,
            stale_since,
            always_validate,
            stale_use,
            while_revalidate,
            if_error,
        },
        groups: record.groups.into_iter().map(Into::into).collect(),
        began,
        received: Timestamp::from_micros(record.received),
        initial_age,
    });
    let trailers = match record.trailers {
        Some(fields) => Some(headers(fields)?),
        None => None,
    };
    Some((
        meta,
        WrittenBody {
            len,
            sums: record.sums,
            trailers,
            hash: record.hash,
        },
    ))
}

/// Returns a name for the requests that a response answers, among those for its URI.
pub(super) fn variant_name(key: &SecondaryKey) -> String {
    // Encoding to memory doesn't fail.
    let encoded = postcard::to_allocvec(&variant(key)).unwrap_or_default();
    ContentHash::of(&encoded).hex()
}

fn variant(key: &SecondaryKey) -> SavedVariant {
    SavedVariant {
        vary: key
            .vary
            .names()
            .iter()
            .map(|name| name.as_str().to_owned())
            .collect(),
        selection: key
            .selection
            .values()
            .map(|value| value.map(<[u8]>::to_vec))
            .collect(),
        implicit_key: key.implicit_key.to_string(),
    }
}

fn fields(headers: &HeaderMap) -> SavedFields {
    headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

fn headers(fields: SavedFields) -> Option<HeaderMap> {
    let field = |(name, value): (String, Vec<u8>)| {
        Some((
            name.parse::<HeaderName>().ok()?,
            HeaderValue::try_from(value).ok()?,
        ))
    };
    let fields = fields.into_iter().map(field).collect::<Option<Vec<_>>>()?;
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        headers.append(name, value);
    }
    Some(headers)
}
