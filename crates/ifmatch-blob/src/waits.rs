//! Long polls: reads that wait until the resource changes (`Prefer: wait`, RFC 7240 §4.3).
//!
//! A poll repeats its read from time to time. It needs no notification, so it sees the changes of other processes, and of
//! programs that write to the object store themselves, in the same way as its own clients.
//!
//! # Interleavings
//!
//! - **A write between the first read and the wait.** Each repetition compares the client's tag with the current version, so it
//!   makes no difference when the write took place.
//! - **A deletion, and a deletion with a new creation.** The repeated read gets 404, or the new version's tag.
//! - **A shutdown.** [`Waits::end`] ends the waits that have begun at their next repetition, and later ones at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;
use ifmatch_core::share::SlotLimit;
use ifmatch_runtime::Clock;

use crate::body::BlobBody;
use crate::dialect::{Client, Context};
use crate::shares::{Share, Shares};

/// The client's preferences (RFC 7240 §2).
pub(crate) const PREFER: HeaderName = HeaderName::from_static("prefer");
/// The preferences that the server has applied (RFC 7240 §3).
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The bounds of long polls, and the number of current ones. Beyond the bounds, a read is answered at once, which the
/// client recognises by the missing `Preference-Applied`. A client gets another wait as long as more waits are free than it has, so
/// it leaves some to others; requests without a [`Client`] share all waits.
#[derive(Debug)]
pub struct Waits {
    longest: Duration,
    interval: Option<Duration>,
    current: Arc<Shares<Client>>,
    has_ended: AtomicBool,
}

impl Waits {
    /// Maximum number of waits unless set otherwise.
    pub const DEFAULT_MAX: usize = 256;
    /// Maximum duration of a wait unless set otherwise.
    const LONGEST: Duration = Duration::from_mins(1);
    /// Time between two reads of a store that responds from memory.
    const SHORT: Duration = Duration::from_millis(100);
    /// Time between two reads of another store.
    const LONG: Duration = Duration::from_secs(1);

    /// Allows this number of concurrent waits, of a minute each.
    pub fn new(max: usize) -> Self {
        let limit = SlotLimit {
            total: u32::try_from(max).unwrap_or(u32::MAX),
            per_client: None,
        };
        Self {
            longest: Self::LONGEST,
            interval: None,
            current: Shares::new(limit),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Sets the maximum duration of a wait.
    #[must_use]
    pub fn longest(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Sets the time between two reads. By default, it is 100 ms if the store responds from memory, and a second
    /// otherwise.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self {
            interval: Some(interval),
            ..self
        }
    }

    /// Returns the number of current waits.
    pub fn count(&self) -> u32 {
        self.current.taken()
    }

    /// Ends all waits with 304, and allows no more: the server is about to stop.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Begins a wait of at most `wanted`, if there is room for one of this client.
    fn begin(&self, wanted: Duration, client: Option<Client>) -> Option<Wait> {
        if self.has_ended() || wanted.is_zero() {
            return None;
        }
        Some(Wait {
            _share: self.current.take(client, 1)?,
            granted: wanted.min(self.longest),
        })
    }
}

/// The defaults.
impl Default for Waits {
    fn default() -> Self {
        Self::new(Self::DEFAULT_MAX)
    }
}

/// One wait, which ends when this is dropped: also if the client disconnects.
#[derive(Debug)]
struct Wait {
    _share: Share<Client>,
    granted: Duration,
}

type ReadResult = Result<Response<BlobBody>, Problem>;

/// Returns the response of `read`. If that is 304 and the client prefers to wait, repeats the read until it is another one,
/// or the time is over.
pub(crate) async fn read<F: Future<Output = ReadResult> + Send>(
    shared: &Context,
    head: &Parts,
    read: impl Fn() -> F + Send,
) -> ReadResult {
    let first = read().await;
    let Some(wanted) = preferred(&head.headers).filter(|_| is_unchanged(&first)) else {
        return first;
    };
    let Some(wait) = shared.waits.begin(wanted, head.extensions.get().copied()) else {
        return first;
    };
    let end = shared.clock.now().saturating_add(wait.granted);
    let usual = if shared.store.has_index() {
        Waits::SHORT
    } else {
        Waits::LONG
    };
    let interval = shared.waits.interval.unwrap_or(usual);
    loop {
        let left = shared.clock.now().until(end);
        shared.clock.sleep(left.min(interval)).await;
        let answer = read().await;
        if !is_unchanged(&answer) || shared.waits.has_ended() || shared.clock.now() >= end {
            return answer.map(|response| applied(response, wait.granted));
        }
    }
}

fn is_unchanged(answer: &ReadResult) -> bool {
    answer
        .as_ref()
        .is_ok_and(|response| response.status() == StatusCode::NOT_MODIFIED)
}

fn applied(mut response: Response<BlobBody>, granted: Duration) -> Response<BlobBody> {
    let text = format!("wait={}", granted.as_secs());
    response.headers_mut().extend(
        HeaderValue::try_from(text)
            .ok()
            .map(|text| (PREFERENCE_APPLIED, text)),
    );
    response
}

/// Returns the time for which the client prefers to wait: the first `wait` of its preferences (RFC 7240 §2). An invalid
/// one is ignored, as an unknown preference is.
fn preferred(headers: &HeaderMap) -> Option<Duration> {
    let lines = fields::lines(headers, PREFER).filter_map(|line| line.to_str().ok());
    let mut preferences = lines.flat_map(|line| line.split(','));
    preferences.find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        is_wait.then(|| {
            value
                .trim()
                .trim_matches('"')
                .parse()
                .ok()
                .map(Duration::from_secs)
        })
    })?
}

/// Returns `true` if the client may prefer to wait.
pub fn may_wait(headers: &HeaderMap) -> bool {
    fields::has(headers, &PREFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(lines: &[&'static str]) -> Option<u64> {
        let headers = lines
            .iter()
            .map(|line| (PREFER, HeaderValue::from_static(line)))
            .collect();
        preferred(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn the_first_wait_of_the_preferences_counts() {
        for (lines, expected) in [
            (&["wait=30"][..], Some(30)),
            (&["respond-async, WAIT = 5"], Some(5)),
            (&["return=minimal", "wait=5; x=1"], Some(5)),
            (&["wait=5, wait=6"], Some(5)),
            (&["wait=\"7\""], Some(7)),
            (&["wait=0"], Some(0)),
            (&["wait"], None),
            (&["wait=-1"], None),
            (&["wait=1.5, wait=6"], None),
            (&["wait=99999999999999999999"], None),
            (&["waits=5"], None),
            (&[], None),
        ] {
            assert_eq!(seconds(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn waits_are_bounded_in_number_and_time() {
        let waits = Arc::new(Waits::new(2).longest(Duration::from_secs(10)));
        let begin = |seconds| waits.begin(Duration::from_secs(seconds), None);
        let first = begin(30).unwrap();
        assert_eq!(first.granted, Duration::from_secs(10));
        let second = begin(3).unwrap();
        assert_eq!((second.granted, waits.count()), (Duration::from_secs(3), 2));
        assert!(begin(1).is_none());
        drop(first);
        assert!(begin(0).is_none());
        assert!(begin(1).is_some());
        waits.end();
        assert!(begin(1).is_none());
    }

    #[test]
    fn one_client_leaves_waits_to_others() {
        let waits = Arc::new(Waits::new(4));
        let begin = |last| {
            waits.begin(
                Duration::from_secs(1),
                Some(Client([192, 0, 2, last].into())),
            )
        };
        let held = [begin(1).unwrap(), begin(1).unwrap()];
        assert!(begin(1).is_none());
        let other = begin(2).unwrap();
        assert!(begin(2).is_none() && begin(3).is_some());
        drop((held, other));
        assert_eq!(waits.count(), 0);
    }
}
