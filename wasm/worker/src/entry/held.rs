//! Limit on the bytes of request bodies in memory. An isolate has 128 MB for all its requests, and WebAssembly never
//! returns memory.

use std::cell::Cell;

use http::{HeaderMap, Method, header};

/// Maximum number of bytes held at a time.
const MOST: u64 = 32 << 20;
/// Body length above which the runtime streams the body to R2.
const WHOLE: u64 = 8 << 20;
/// Bytes held for a streamed body.
const PASSING: u64 = 256 << 10;
/// Bytes held for a body without a length: one part being sent, and the next one being received.
const UNTOLD: u64 = 2 * WHOLE;

thread_local! {
    static HELD: Cell<u64> = const { Cell::new(0) };
}

/// Memory reserved for a request's body, released on drop.
#[derive(Debug)]
pub(super) struct Room(u64);

impl Room {
    /// Reserves the memory that a request needs. Returns `None` if other requests hold too much.
    pub(super) fn take(method: &Method, fields: &HeaderMap) -> Option<Self> {
        let needed = needed(method, fields);
        let held = HELD.get() + needed;
        let has_room = needed == 0 || held <= MOST;
        has_room.then(|| {
            HELD.set(held);
            Self(needed)
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HELD.set(HELD.get() - self.0);
    }
}

fn needed(method: &Method, fields: &HeaderMap) -> u64 {
    if matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS) {
        return 0;
    }
    let length = fields.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match length {
        None => UNTOLD,
        Some(length) if length > WHOLE => PASSING,
        Some(length) => length,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn room(method: &Method, length: Option<u64>) -> Option<Room> {
        let length = length.map(|length| (header::CONTENT_LENGTH, length.to_string().parse().unwrap()));
        Room::take(method, &length.into_iter().collect())
    }

    #[test]
    fn bodies_are_held_up_to_the_bound_and_reads_need_no_room() {
        let mut held: Vec<_> = (0..3).map(|_| room(&Method::PUT, Some(WHOLE)).unwrap()).collect();
        assert!(room(&Method::PUT, None).is_none(), "a body without a length needs twice as much");
        held.push(room(&Method::PUT, Some(WHOLE)).unwrap());
        assert!(room(&Method::PUT, Some(1)).is_none());
        assert!(room(&Method::PUT, Some(1 << 40)).is_none());
        assert!(room(&Method::PUT, Some(0)).is_some());
        assert!(room(&Method::GET, None).is_some());
        held.pop();
        assert!(room(&Method::PUT, Some(WHOLE)).is_some());
        drop(held);
        assert_eq!(HELD.get(), 0);
    }
}
