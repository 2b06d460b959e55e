//! A request's content, lent to a connection and returned if it can be sent again.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::response_body::CleanTrailers;

/// Any error of a body.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The client stopped sending the body.
#[derive(Debug, thiserror::Error)]
#[error("the client stopped sending the body: {0}")]
pub(crate) struct InterruptedBody(BoxError);

/// Maximum size in bytes of content that is kept so that it can be sent again.
const KEPT: usize = 64 << 10;

/// Memory of a kept frame besides its data, in bytes.
const OVERHEAD: usize = 128;

/// Maximum time to wait for a connection that has failed to return the content.
const RETURN: Duration = Duration::from_secs(5);

/// A request's content, which can be offered to several servers until one begins to read it, or if it is short, until
/// one has processed it.
pub(crate) struct RequestBody(Arc<SharedContent>);

/// Holds the content while it isn't lent.
struct SharedContent {
    empty: bool,
    state: Mutex<ContentState>,
    returned: Notify,
    /// Time since when the server is expected to take the next part of the content, or after the last one to respond.
    /// `None` while there is no connection, or the client is expected to send the next part.
    expected: Mutex<Option<Instant>>,
}

/// Where the content is.
enum ContentState {
    /// Here, and can be sent from its beginning.
    Whole(BufferedContent),
    /// With a connection.
    Lent,
    /// Empty, or partly sent and not kept.
    Gone,
}

/// Content that is sent from its beginning.
struct BufferedContent {
    /// Frames that were read from the client before.
    kept: Vec<Frame<Bytes>>,
    /// The rest, or `None` at the end.
    rest: Option<UnsyncBoxBody<Bytes, InterruptedBody>>,
}

/// The content as sent by a connection.
pub(crate) struct LentBody {
    shared: Arc<SharedContent>,
    content: Option<BufferedContent>,
    /// Number of kept frames that were sent.
    position: usize,
    /// Number of bytes that may still be kept, or `None` if what is sent can't be sent again.
    room: Option<usize>,
    begun: bool,
}

impl RequestBody {
    /// Takes over a request's content.
    pub(crate) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::empty();
        }
        let content = CleanTrailers::new(body)
            .map_err(|error| InterruptedBody(error.into()))
            .boxed_unsync();
        let state = ContentState::Whole(BufferedContent {
            kept: Vec::new(),
            rest: Some(content),
        });
        Self::with(false, state)
    }

    /// Creates empty content.
    pub(crate) fn empty() -> Self {
        Self::with(true, ContentState::Gone)
    }

    fn with(empty: bool, state: ContentState) -> Self {
        Self(Arc::new(SharedContent {
            empty,
            state: Mutex::new(state),
            returned: Notify::new(),
            expected: Mutex::default(),
        }))
    }

    /// Returns `true` if there is no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.empty
    }

    /// Returns `true` if the content can be sent from its beginning.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.empty || matches!(*self.0.state(), ContentState::Whole(_))
    }

    /// Lends the content to a connection. Lends nothing if it can't be sent from its beginning.
    ///
    /// If `keep` is set, short content can be sent again after the connection has read it. This is for servers that
    /// state that they haven't processed a request.
    pub(crate) fn lend(&self, keep: bool) -> LentBody {
        self.0.expect_server(true);
        let mut state = self.0.state();
        let content = match std::mem::replace(&mut *state, ContentState::Gone) {
            ContentState::Whole(content) => {
                *state = ContentState::Lent;
                Some(content)
            }
            other => {
                *state = other;
                None
            }
        };
        let kept = content
            .iter()
            .flat_map(|content| &content.kept)
            .map(size)
            .sum();
        let room = keep.then(|| KEPT.saturating_sub(kept));
        LentBody {
            shared: Arc::clone(&self.0),
            content,
            position: 0,
            room,
            begun: false,
        }
    }

    /// Expects nothing of a server until the content is lent: there is no connection.
    pub(crate) fn await_connection(&self) {
        self.0.expect_server(false);
    }

    /// Waits until a connection that has failed has returned the content, or gives up.
    pub(crate) async fn wait_for_return(&self) {
        let returned = async {
            loop {
                let returned = self.0.returned.notified();
                if !matches!(*self.0.state(), ContentState::Lent) {
                    return;
                }
                returned.await;
            }
        };
        drop(timeout(RETURN, returned).await);
    }

    /// Waits until the server hasn't taken the next part of the content, or after the last one not responded, for this
    /// long. The time in which the client sends doesn't count.
    pub(crate) async fn wait_for_stall(&self, limit: Duration) {
        let mut left = limit;
        while !left.is_zero() {
            sleep(left).await;
            let since = *self.0.expected();
            left = limit.saturating_sub(since.map_or(Duration::ZERO, |since| since.elapsed()));
        }
    }
}

impl SharedContent {
    fn state(&self) -> MutexGuard<'_, ContentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected(&self) -> MutexGuard<'_, Option<Instant>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the server is expected to act from now on, or else the client.
    fn expect_server(&self, is_expected: bool) {
        *self.expected() = is_expected.then(Instant::now);
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        let Some(content) = self.content.take() else {
            return;
        };
        let is_whole = !self.begun || self.room.is_some();
        *self.shared.state() = if is_whole {
            ContentState::Whole(content)
        } else {
            ContentState::Gone
        };
        self.shared.returned.notify_waiters();
    }
}

impl LentBody {
    /// Keeps a frame that is about to be sent, if there is room.
    fn keep(&mut self, frame: &Frame<Bytes>) {
        let Some(content) = &mut self.content else {
            return;
        };
        self.room = self.room.and_then(|room| room.checked_sub(size(frame)));
        if self.room.is_some() {
            content.kept.push(copy(frame));
            self.position = content.kept.len();
        } else {
            content.kept.clear();
            self.position = 0;
        }
    }
}

/// Returns the memory of a frame. Trailers count as if they filled it.
fn size(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(KEPT, Bytes::len) + OVERHEAD
}

/// Copies a frame without copying its data.
fn copy(frame: &Frame<Bytes>) -> Frame<Bytes> {
    match (frame.data_ref(), frame.trailers_ref()) {
        (Some(data), _) => Frame::data(data.clone()),
        (None, trailers) => Frame::trailers(trailers.cloned().unwrap_or_default()),
    }
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = InterruptedBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InterruptedBody>>> {
        self.begun = true;
        let position = self.position;
        let Some(content) = &mut self.content else {
            return Poll::Ready(None);
        };
        if let Some(frame) = content.kept.get(position) {
            let frame = copy(frame);
            self.position += 1;
            self.shared.expect_server(true);
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(rest) = &mut content.rest else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut *rest).poll_frame(cx);
        let is_end = rest.is_end_stream();
        self.shared.expect_server(polled.is_ready());
        let frame = ready!(polled);
        match &frame {
            Some(Ok(frame)) => self.keep(frame),
            Some(Err(_)) => self.room = None,
            None => {}
        }
        if (is_end || !matches!(&frame, Some(Ok(_))))
            && let Some(content) = &mut self.content
        {
            content.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.as_ref().is_none_or(|content| {
            self.position >= content.kept.len()
                && content.rest.as_ref().is_none_or(Body::is_end_stream)
        })
    }

    fn size_hint(&self) -> SizeHint {
        let Some(content) = &self.content else {
            return SizeHint::with_exact(0);
        };
        let kept = content
            .kept
            .iter()
            .skip(self.position)
            .filter_map(Frame::data_ref);
        let kept = kept.map(|data| data.len() as u64).sum::<u64>();
        let rest = content
            .rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(kept));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(kept));
        }
        hint
    }
}

impl fmt::Debug for LentBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBody")
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{HeaderMap, HeaderName, HeaderValue};
    use http_body_util::Full;

    use super::*;

    /// Content in several frames.
    struct Chunks(std::array::IntoIter<&'static str, 2>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.next().map(|chunk| Ok(Frame::data(chunk.into()))))
        }
    }

    #[tokio::test]
    async fn content_can_be_recovered_until_it_is_read() {
        let outgoing = RequestBody::new(Full::new(Bytes::from_static(b"order")));
        let lent = outgoing.lend(false);
        assert!(!outgoing.is_whole() && !lent.is_end_stream());
        drop(lent);
        assert!(outgoing.is_whole());
        let mut lent = outgoing.lend(false);
        assert_eq!(
            lent.frame()
                .await
                .expect("a frame")
                .expect("no error")
                .into_data()
                .expect("data"),
            "order"
        );
        drop(lent);
        assert!(!outgoing.is_whole());
    }

    #[tokio::test]
    async fn an_empty_body_can_be_sent_any_number_of_times() {
        let outgoing = RequestBody::new(Full::new(Bytes::new()));
        for _ in 0..2 {
            assert!(outgoing.lend(false).frame().await.is_none());
            assert!(outgoing.is_whole() && outgoing.is_empty());
        }
    }

    /// Content of this number of bytes, one by one, and then a client that sends no more.
    struct Stalled(usize);

    impl Body for Stalled {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some(left) = self.0.checked_sub(1) else {
                return Poll::Pending;
            };
            self.0 = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_stalls_if_it_takes_no_content_but_not_while_the_client_sends() {
        const LIMIT: Duration = Duration::from_mins(1);
        let stalls = async |outgoing: &RequestBody| {
            timeout(9 * LIMIT, outgoing.wait_for_stall(LIMIT))
                .await
                .is_ok()
        };
        let empty = RequestBody::empty();
        assert!(!stalls(&empty).await, "there is no connection");
        drop(empty.lend(false));
        assert!(stalls(&empty).await, "the server does not respond");
        empty.await_connection();
        assert!(!stalls(&empty).await, "there is no new connection");
        let outgoing = RequestBody::new(Stalled(9));
        assert!(!stalls(&outgoing).await, "there is no connection");
        let mut lent = outgoing.lend(false);
        assert!(stalls(&outgoing).await, "it does not take the first part");
        let slow = async {
            for _ in 0..8 {
                assert!(lent.frame().await.is_some());
                sleep(LIMIT.mul_f32(0.9)).await;
            }
        };
        tokio::select! {
            () = slow => {}
            () = outgoing.wait_for_stall(LIMIT) => panic!("each part is taken in time"),
        }
        assert!(stalls(&outgoing).await, "it does not take the next part");
        assert!(lent.frame().await.is_some());
        let waiting = timeout(Duration::ZERO, lent.frame()).await;
        assert!(
            waiting.is_err() && !stalls(&outgoing).await,
            "the client does not send"
        );
    }

    async fn read(mut body: LentBody) -> (Vec<u8>, Option<HeaderMap>, LentBody) {
        let (mut content, mut trailers) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            match frame.expect("no error").into_data() {
                Ok(data) => content.extend(data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        assert!(body.is_end_stream());
        (content, trailers, body)
    }

    #[tokio::test]
    async fn short_content_can_be_sent_again_if_it_is_kept() {
        let trailers = HeaderMap::from_iter([(
            HeaderName::from_static("x-sum"),
            HeaderValue::from_static("7"),
        )]);
        for trailers in [None, Some(trailers)] {
            let body = Full::new(Bytes::from_static(b"order"))
                .with_trailers(std::future::ready(trailers.clone().map(Ok)));
            let outgoing = RequestBody::new(body);
            for _ in 0..3 {
                assert!(outgoing.is_whole());
                let lent = outgoing.lend(true);
                assert!(!outgoing.is_whole() && lent.size_hint().lower() == 5);
                let (content, found, lent) = read(lent).await;
                assert_eq!(
                    (&content[..], found.as_ref()),
                    (&b"order"[..], trailers.as_ref())
                );
                tokio::join!(outgoing.wait_for_return(), async { drop(lent) });
                // Trailers aren't kept.
                if trailers.is_some() {
                    break;
                }
            }
            assert_eq!(outgoing.is_whole(), trailers.is_none());
        }
    }

    #[tokio::test]
    async fn content_that_was_sent_in_part_is_sent_from_its_beginning() {
        let outgoing = RequestBody::new(Chunks(["ab", "cd"].into_iter()));
        let mut lent = outgoing.lend(true);
        assert_eq!(
            lent.frame()
                .await
                .expect("a frame")
                .expect("no error")
                .into_data()
                .expect("data"),
            "ab"
        );
        drop(lent);
        assert_eq!(read(outgoing.lend(true)).await.0, b"abcd");
        // Over HTTP/1.1, a request that was begun can't be repeated.
        assert_eq!(read(outgoing.lend(false)).await.0, b"abcd");
        assert!(!outgoing.is_whole());
    }

    #[tokio::test]
    async fn long_content_is_not_kept() {
        let outgoing = RequestBody::new(Full::new(Bytes::from(vec![0; KEPT - OVERHEAD + 1])));
        drop(read(outgoing.lend(true)).await);
        assert!(!outgoing.is_whole());
        let outgoing = RequestBody::new(Full::new(Bytes::from(vec![0; KEPT - OVERHEAD])));
        drop(read(outgoing.lend(true)).await);
        assert!(outgoing.is_whole());
    }
}
