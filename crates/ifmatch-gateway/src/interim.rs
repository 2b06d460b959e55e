//! Interim responses: what is to be said to a client before the answer.
//!
//! Whoever serves HTTP takes it from here and says it: on HTTP/1 the connection's stream, on HTTP/2 the request's. While a
//! request has no answer yet, that is a moment between two messages: the one before is complete, and the next one has not
//! begun. The answer waits until what came before it has been said.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use ifmatch_proxy::Interim;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The most that is said before an answer, in bytes: an upstream that sends more is not worth it.
const ROOM: usize = 64 * 1024;

/// What a field, or a message without any, takes besides its text.
const OVERHEAD: usize = 32;

/// How long an answer waits for a client that does not take what comes before it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be said before the answer, on a connection of HTTP/1 or a stream of HTTP/2.
#[derive(Debug, Default)]
pub(crate) struct Interjections {
    waiting: Mutex<Waiting>,
    said: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The request that may say something: others have their answer already.
    turn: u64,
    /// Bytes of what it has said.
    length: usize,
    messages: Vec<Response<()>>,
    /// The task that has to say it.
    speaker: Option<Waker>,
}

/// The leave of one request's upstreams to speak.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    interjections: Arc<Interjections>,
    number: u64,
}

impl Turn {
    /// How an upstream is to use it.
    pub(crate) fn interim(&self) -> Interim {
        let turn = self.clone();
        Interim::new(move |status, headers| turn.say(status, headers))
    }

    /// Says this as soon as it can be. What comes after the request was answered, from work that went on, is not said.
    pub(crate) fn say(&self, status: StatusCode, headers: HeaderMap) {
        let mut waiting = self.interjections.lock();
        let length = waiting.length + length(&headers);
        if waiting.turn != self.number || length > ROOM {
            return;
        }
        waiting.length = length;
        let mut message = Response::new(());
        *message.status_mut() = status;
        *message.headers_mut() = headers;
        waiting.messages.push(message);
        if let Some(speaker) = waiting.speaker.take() {
            speaker.wake();
        }
    }
}

impl Interjections {
    /// Lets a request's upstreams speak until [`Interjections::end_turn`].
    pub(crate) fn open(self: &Arc<Self>) -> Turn {
        Turn { number: self.lock().turn, interjections: Arc::clone(self) }
    }

    /// Ends the turn of a request; `true` if something is still to be said before its answer.
    pub(crate) fn end_turn(&self) -> bool {
        let mut waiting = self.lock();
        waiting.turn += 1;
        waiting.length = 0;
        !waiting.messages.is_empty()
    }

    /// Waits until all has been said. What a client does not take in time is not said at all.
    pub(crate) async fn settle(&self) {
        let all_said = async {
            loop {
                let said = self.said.notified();
                if self.lock().messages.is_empty() {
                    return;
                }
                said.await;
            }
        };
        if timeout(PATIENCE, all_said).await.is_err() {
            self.lock().messages.clear();
        }
    }

    /// Takes what is to be said now; the task of `cx` is woken when there is more. [`Interjections::said`] comes after.
    pub(crate) fn take(&self, cx: &Context<'_>) -> Vec<Response<()>> {
        let mut waiting = self.lock();
        if !waiting.speaker.as_ref().is_some_and(|speaker| speaker.will_wake(cx.waker())) {
            waiting.speaker = Some(cx.waker().clone());
        }
        std::mem::take(&mut waiting.messages)
    }

    /// Notes that what was taken has been said.
    pub(crate) fn said(&self) {
        self.said.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a message takes, at most.
fn length(headers: &HeaderMap) -> usize {
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD);
    OVERHEAD + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn there_is_room_for_so_much_before_each_answer() {
        let interjections = Arc::new(Interjections::default());
        let cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            let turn = interjections.open();
            let mut count = 0;
            for _ in 0..100 {
                let link = HeaderValue::from_str(&"x".repeat(1 << 10)).unwrap();
                turn.say(StatusCode::EARLY_HINTS, HeaderMap::from_iter([(http::header::LINK, link)]));
                count += interjections.take(&cx).len();
            }
            assert_eq!(count, ROOM / (OVERHEAD + 4 + (1 << 10) + OVERHEAD));
            interjections.end_turn();
        }
    }
}
