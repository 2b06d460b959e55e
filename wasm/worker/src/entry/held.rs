//! Limit on the bytes of request bodies in memory. An isolate has 128 MB for all its requests, and WebAssembly never
//! returns memory.
//!
//! The platform ends requests without dropping their futures, for example after their clients have left:
//!
//! ```text
//!   request 1   reserves 8 MiB, waits for R2Bucket ── ended by the platform: nothing of it runs, or is dropped
//!   …
//!   request 5   8 MiB more would exceed the limit: 503, until the reservations of 1 to 4 expire
//! ```
//!
//! Each reservation therefore expires, unless bytes arrive for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Method, header};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, SystemClock};

/// Maximum number of bytes held at a time.
const LIMIT: u64 = 32 << 20;
/// Body length above which the runtime streams the body to R2.
const WHOLE: u64 = 8 << 20;
/// Bytes held for a streamed body.
const STREAMED: u64 = 256 << 10;
/// Maximum number of bytes held for a body sent in parts: the part being sent, and the next one being received.
const PARTS: u64 = 2 * WHOLE;
/// Time after the last byte until a reservation expires. A request that is still running waits less for R2 and its objects.
const EXPIRY: Duration = Duration::from_mins(5);

/// Reservations of all requests of the isolate.
static HELD: Mutex<Vec<HeldMemory>> = Mutex::new(Vec::new());
/// Number of the next room.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The reservation of a [`BodyRoom`].
#[derive(Debug)]
struct HeldMemory {
    /// Number of the room.
    number: u64,
    bytes: u64,
    until: Timestamp,
}

/// Memory of a request's body, released on drop.
#[derive(Debug)]
pub(super) struct BodyRoom {
    number: u64,
    /// Bytes read in WebAssembly.
    arrived: AtomicU64,
    is_exceeded: AtomicBool,
}

impl BodyRoom {
    /// Reserves the memory for a body that is received whole or streamed. Returns `None` if other requests hold too much.
    ///
    /// Any other body is counted as it arrives, by [`grow`](Self::grow).
    pub(super) fn take(method: &Method, fields: &HeaderMap) -> Option<Arc<Self>> {
        Self::take_at(SystemClock.now(), needed(method, fields))
    }

    fn take_at(now: Timestamp, bytes: u64) -> Option<Arc<Self>> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let room = Self {
            number,
            arrived: AtomicU64::new(0),
            is_exceeded: AtomicBool::new(false),
        };
        room.hold(now, bytes).then(|| Arc::new(room))
    }

    /// Counts bytes that are read in WebAssembly. Returns `false` if they exceed the limit.
    pub(super) fn grow(&self, bytes: u64) -> bool {
        self.grow_at(SystemClock.now(), bytes)
    }

    fn grow_at(&self, now: Timestamp, bytes: u64) -> bool {
        let arrived = self
            .arrived
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        let is_kept = self.hold(now, arrived.min(PARTS));
        self.is_exceeded.fetch_or(!is_kept, Ordering::Relaxed);
        is_kept
    }

    /// Returns `true` if bytes that arrived exceeded the limit.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }

    /// Holds at least this many bytes from now on. Returns `false` if other requests hold too much.
    fn hold(&self, now: Timestamp, bytes: u64) -> bool {
        let mut all = all();
        let before = all
            .iter()
            .find(|held| held.number == self.number)
            .map_or(0, |held| held.bytes);
        let bytes = bytes.max(before);
        all.retain(|held| held.number != self.number && held.until > now);
        let fits =
            bytes == before || all.iter().map(|held| held.bytes).sum::<u64>() + bytes <= LIMIT;
        let kept = if fits { bytes } else { before };
        if kept > 0 {
            all.push(HeldMemory {
                number: self.number,
                bytes: kept,
                until: now.saturating_add(EXPIRY),
            });
        }
        fits
    }
}

impl Drop for BodyRoom {
    fn drop(&mut self) {
        all().retain(|held| held.number != self.number);
    }
}

/// No code panics while it holds the lock.
fn all() -> MutexGuard<'static, Vec<HeldMemory>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of bytes to reserve before the body arrives.
fn needed(method: &Method, fields: &HeaderMap) -> u64 {
    if matches!(
        *method,
        Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS
    ) {
        return 0;
    }
    let length = fields
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
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

    fn bytes_held() -> u64 {
        all().iter().map(|held| held.bytes).sum()
    }

    fn room(method: &Method, length: Option<u64>) -> Option<Arc<BodyRoom>> {
        let length =
            length.map(|length| (header::CONTENT_LENGTH, length.to_string().parse().unwrap()));
        BodyRoom::take(method, &length.into_iter().collect())
    }

    #[test]
    fn bodies_are_held_up_to_the_limit_and_reads_need_no_memory() {
        let mut held: Vec<_> = (0..3)
            .map(|_| room(&Method::PUT, Some(WHOLE)).unwrap())
            .collect();
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
        assert!(
            (0..10).all(|_| growing.grow(WHOLE)),
            "parts are sent meanwhile"
        );
        assert_eq!(bytes_held(), PARTS);
        drop(growing);
        let [whole, long] =
            [WHOLE, 1 << 40].map(|length| room(&Method::PUT, Some(length)).unwrap());
        assert!(whole.grow(WHOLE));
        assert_eq!(
            bytes_held(),
            WHOLE + STREAMED,
            "the whole body was reserved"
        );
        assert!((0..10).all(|_| long.grow(WHOLE)));
        assert_eq!(
            bytes_held(),
            WHOLE + PARTS,
            "a long body that is read in parts"
        );
        drop((whole, long));
        assert_eq!(bytes_held(), 0);
        reservations_of_ended_requests_expire();
    }

    /// In the same test, since all tests of a process share the limit.
    fn reservations_of_ended_requests_expire() {
        let start = SystemClock.now();
        let later = |seconds| start.saturating_add(Duration::from_secs(seconds));
        let ended: Vec<_> = (0..3)
            .map(|_| BodyRoom::take_at(start, WHOLE).unwrap())
            .collect();
        let running = BodyRoom::take_at(start, 0).unwrap();
        assert!(running.grow_at(later(200), WHOLE));
        assert!(BodyRoom::take_at(later(299), 1).is_none());
        let next = BodyRoom::take_at(later(300), WHOLE).expect("the first three have expired");
        assert_eq!(bytes_held(), 2 * WHOLE, "bytes arrived for the running one");
        assert!(
            running.grow_at(later(600), WHOLE),
            "an expired reservation is made again when bytes arrive"
        );
        drop((ended, running, next));
        assert_eq!(bytes_held(), 0);
    }
}
