//! Limit on the bytes of request bodies in memory. An isolate has 128 MB for all its requests, and WebAssembly never
//! returns memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{HeaderMap, Method, header};

/// Maximum number of bytes held at a time.
const LIMIT: u64 = 32 << 20;
/// Body length above which the runtime streams the body to R2.
const WHOLE: u64 = 8 << 20;
/// Bytes held for a streamed body.
const STREAMED: u64 = 256 << 10;
/// Maximum number of bytes held for a body sent in parts: the part being sent, and the next one being received.
const PARTS: u64 = 2 * WHOLE;

/// Bytes held by all requests of the isolate.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Memory of a request's body, released on drop.
#[derive(Debug)]
pub(super) struct Room {
    held: AtomicU64,
    /// Bytes read in WebAssembly.
    arrived: AtomicU64,
    is_exceeded: AtomicBool,
}

impl Room {
    /// Reserves the memory for a body that is received whole or streamed. Returns `None` if other requests hold too much.
    ///
    /// Any other body is counted as it arrives, by [`grow`](Self::grow).
    pub(super) fn take(method: &Method, fields: &HeaderMap) -> Option<Arc<Self>> {
        let room = Self { held: AtomicU64::new(0), arrived: AtomicU64::new(0), is_exceeded: AtomicBool::new(false) };
        room.reserve(needed(method, fields)).then(|| Arc::new(room))
    }

    /// Counts bytes that are read in WebAssembly. Returns `false` if they exceed the limit.
    pub(super) fn grow(&self, bytes: u64) -> bool {
        let arrived = self.arrived.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let is_kept = self.reserve(arrived.min(PARTS).saturating_sub(self.held.load(Ordering::Relaxed)));
        self.is_exceeded.fetch_or(!is_kept, Ordering::Relaxed);
        is_kept
    }

    /// Returns `true` if bytes that arrived exceeded the limit.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: u64) -> bool {
        let fits = bytes == 0 || HELD.load(Ordering::Relaxed) + bytes <= LIMIT;
        if fits {
            HELD.fetch_add(bytes, Ordering::Relaxed);
            self.held.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HELD.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}

fn needed(method: &Method, fields: &HeaderMap) -> u64 {
    if matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS) {
        return 0;
    }
    let length = fields.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match length {
        None => 0,
        Some(length) if length > WHOLE => STREAMED,
        Some(length) => length,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn room(method: &Method, length: Option<u64>) -> Option<Arc<Room>> {
        let length = length.map(|length| (header::CONTENT_LENGTH, length.to_string().parse().unwrap()));
        Room::take(method, &length.into_iter().collect())
    }

    #[test]
    fn bodies_are_held_up_to_the_limit_and_reads_need_no_memory() {
        let mut held: Vec<_> = (0..3).map(|_| room(&Method::PUT, Some(WHOLE)).unwrap()).collect();
        let growing = room(&Method::PUT, None).unwrap();
        assert!(growing.grow(WHOLE - 1) && !growing.grow(2) && growing.is_exceeded());
        drop(growing);
        held.push(room(&Method::PUT, Some(WHOLE)).unwrap());
        assert!(room(&Method::PUT, Some(1)).is_none());
        assert!(room(&Method::PUT, Some(1 << 40)).is_none());
        assert!(room(&Method::PUT, Some(0)).is_some());
        assert!(room(&Method::GET, None).is_some());
        assert!(!room(&Method::PUT, None).unwrap().grow(1));
        drop(held);
        let growing = room(&Method::PUT, None).unwrap();
        assert!((0..10).all(|_| growing.grow(WHOLE)), "parts are sent meanwhile");
        assert_eq!(HELD.load(Ordering::Relaxed), PARTS);
        drop(growing);
        let [whole, long] = [WHOLE, 1 << 40].map(|length| room(&Method::PUT, Some(length)).unwrap());
        assert!(whole.grow(WHOLE));
        assert_eq!(HELD.load(Ordering::Relaxed), WHOLE + STREAMED, "the whole body was reserved");
        assert!((0..10).all(|_| long.grow(WHOLE)));
        assert_eq!(HELD.load(Ordering::Relaxed), WHOLE + PARTS, "a long body that is read in parts");
        drop((whole, long));
        assert_eq!(HELD.load(Ordering::Relaxed), 0);
    }
}
