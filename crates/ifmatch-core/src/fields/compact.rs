//! Copies of header fields for storage.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};

/// Copies header fields for storage. The values share one allocation: a received message's are slices of a much larger
/// buffer, which they would keep in memory. Leaves room in the index for `added` more names.
pub fn compact(headers: &HeaderMap, added: usize) -> HeaderMap {
    let mut text = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    headers
        .values()
        .for_each(|value| text.extend_from_slice(value.as_bytes()));
    let mut text: Bytes = text.freeze();
    let mut copy = HeaderMap::with_capacity(headers.keys_len() + added);
    for (name, value) in headers {
        // They were a value before, so they are one again.
        if let Ok(value) = HeaderValue::from_maybe_shared(text.split_to(value.len())) {
            copy.append(name, value);
        }
    }
    // The second copy drops the spare capacity for fields, which would be most of a small response, but not the index.
    copy.clone()
}
