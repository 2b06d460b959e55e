//! Interim responses (1xx), which precede the final response.
//!
//! The connection's stream sends them on HTTP/1, the request's stream on HTTP/2. As long as a request has no final
//! response, the connection is between two messages, so an interim response can be sent at any time. The final response
//! waits until all interim responses before it have been sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Maximum total size of the interim responses to one request, in bytes. Further ones are dropped.
const MAX_SIZE: usize = 64 * 1024;

/// Size allowed for a field beside its name and value, and for a message without fields, in bytes.
const OVERHEAD: usize = 32;

/// Time that a final response waits for a client that doesn't read the interim ones.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Interim responses waiting to be sent, on an HTTP/1 connection or an HTTP/2 stream.
#[derive(Debug, Default)]
pub(crate) struct InterimQueue {
    pending: Mutex<PendingResponses>,
    sent: Notify,
}

/// What waits to be sent for the current request.
#[derive(Debug, Default)]
struct PendingResponses {
    /// Number of the current request. Earlier requests have their final response.
    request: u64,
    /// Total size of its interim responses, in bytes.
    size: usize,
    messages: Vec<Response<()>>,
    /// The task that sends them.
    writer: Option<Waker>,
}

/// Sends interim responses to one request.
#[derive(Clone, Debug)]
pub struct InterimSender {
    queue: Arc<InterimQueue>,
    request: u64,
}

impl InterimSender {
    /// Sends an interim response as soon as possible. Drops it if the request already has its final response, or more
    /// than 64 KiB of interim responses.
    pub fn send(&self, status: StatusCode, headers: HeaderMap) {
        let mut pending = self.queue.lock();
        let size = pending.size + size(&headers);
        if pending.request != self.request || size > MAX_SIZE {
            return;
        }
        pending.size = size;
        let mut message = Response::new(());
        *message.status_mut() = status;
        *message.headers_mut() = headers;
        pending.messages.push(message);
        if let Some(writer) = pending.writer.take() {
            writer.wake();
        }
    }
}

impl InterimQueue {
    /// Returns a sender for the current request, which works until [`InterimQueue::end_request`].
    pub(crate) fn sender(self: &Arc<Self>) -> InterimSender {
        InterimSender {
            request: self.lock().request,
            queue: Arc::clone(self),
        }
    }

    /// Ends the current request. Returns `true` if some of its interim responses haven't been sent yet.
    pub(crate) fn end_request(&self) -> bool {
        let mut pending = self.lock();
        pending.request += 1;
        pending.size = 0;
        !pending.messages.is_empty()
    }

    /// Waits until all messages have been sent. Drops those that the client doesn't read in time.
    pub(crate) async fn flushed(&self) {
        let all_sent = async {
            loop {
                let sent = self.sent.notified();
                if self.lock().messages.is_empty() {
                    return;
                }
                sent.await;
            }
        };
        if timeout(FLUSH_TIMEOUT, all_sent).await.is_err() {
            self.lock().messages.clear();
        }
    }

    /// Takes the waiting messages, and registers the task to be woken when there are more. The caller sends them and
    /// then calls [`InterimQueue::notify_sent`].
    pub(crate) fn take(&self, cx: &Context<'_>) -> Vec<Response<()>> {
        let mut pending = self.lock();
        if !pending
            .writer
            .as_ref()
            .is_some_and(|writer| writer.will_wake(cx.waker()))
        {
            pending.writer = Some(cx.waker().clone());
        }
        std::mem::take(&mut pending.messages)
    }

    /// Reports that the messages taken last have been sent.
    pub(crate) fn notify_sent(&self) {
        self.sent.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, PendingResponses> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a message's maximum size, in bytes.
fn size(headers: &HeaderMap) -> usize {
    let fields = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD);
    OVERHEAD + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_size_of_interim_responses_is_limited_per_request() {
        let queue = Arc::new(InterimQueue::default());
        let cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            let sender = queue.sender();
            let mut count = 0;
            for _ in 0..100 {
                let link = HeaderValue::from_str(&"x".repeat(1 << 10)).unwrap();
                sender.send(
                    StatusCode::EARLY_HINTS,
                    HeaderMap::from_iter([(http::header::LINK, link)]),
                );
                count += queue.take(&cx).len();
            }
            assert_eq!(count, MAX_SIZE / (OVERHEAD + 4 + (1 << 10) + OVERHEAD));
            queue.end_request();
        }
    }
}
