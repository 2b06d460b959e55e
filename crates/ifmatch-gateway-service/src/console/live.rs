//! Live pages: a stream of server-sent events for each page that is open, so browsers ask for nothing.
//!
//! The console renders the page from time to time, and sends it if it differs from the last one that it sent. A stream ends with its
//! session, and when the gateway stops.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::header::ACCEPT;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use ifmatch_blob::shares::{Share, Shares};
use ifmatch_http_server::{AnyBody, RequestContext, SlotLimit};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::form::RequestForm;
use super::inside::RequestFailure;
use super::{Console, PageAnswer};

/// The type of the streams.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// Maximum number of streams, in total and per session and address. Operators share both if they need no token, and reach the console
/// through a tunnel. Only pages in view have streams.
const LIMIT: SlotLimit = SlotLimit {
    total: 64,
    per_client: Some(16),
};
/// Time between two looks at a page, unless a look takes long.
const INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time between two looks.
const LONGEST_INTERVAL: Duration = Duration::from_mins(1);
/// Time between two looks, as a multiple of the time that one takes. A store with many blobs is slow to list.
const SHARE: u32 = 10;
/// The pages with live parts.
const PAGES: [&str; 5] = ["/", "/blob", "/conflicts", "/leases", "/cache"];
/// The event at the end of a session.
const END: &str = "event: end\ndata:\n\n";
/// The event of a page that can't be read.
const STALE: &str = "event: stale\ndata:\n\n";
/// In place of a digest, for a page that couldn't be read. The next one that can differs from it.
const FAILED: [u8; 32] = [0; 32];
/// A comment, in place of a page that hasn't changed. A stream whose browser has left ends when it sends something.
const COMMENT: &str = ":\n\n";

/// The streams of all sessions.
pub(super) type LiveStreams = Arc<Shares<(String, IpAddr)>>;

/// Returns the places for streams, all of them free.
pub(super) fn streams() -> LiveStreams {
    Shares::new(LIMIT)
}

/// Returns `true` for a request of a stream.
pub(super) fn is_wanted(head: &Parts) -> bool {
    let accepts = head
        .headers
        .get(ACCEPT)
        .is_some_and(|accept| accept.as_bytes() == EVENT_STREAM.as_bytes());
    accepts && head.method == Method::GET && PAGES.contains(&head.uri.path())
}

/// Begins a stream of the page that a request names.
pub(super) fn follow(
    console: Arc<Console>,
    head: Parts,
    context: RequestContext,
) -> Result<AnyBody, RequestFailure> {
    let Some(session) = console.session(&head.headers) else {
        return Ok(events(stream::iter([Bytes::from(END)])));
    };
    let owner = (session.form_token, context.client());
    let Some(share) = console.streams.take(Some(owner), 1) else {
        let detail = "Too many live pages are open. Reload this one to update it.";
        return Err(RequestFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let ended = console.sessions.ended();
    let page = LivePage {
        console,
        head,
        context,
        ended,
        sent: None,
        interval: INTERVAL,
        is_over: false,
        _share: share,
    };
    Ok(events(stream::unfold(page, async |mut page| {
        Some((page.next().await?, page))
    })))
}

/// Returns a body of these events.
fn events(events: impl Stream<Item = Bytes> + Send + 'static) -> AnyBody {
    AnyBody::new(StreamBody::new(events.map(|event| Ok(Frame::data(event)))))
}

/// A page that a browser has open.
struct LivePage {
    console: Arc<Console>,
    head: Parts,
    context: RequestContext,
    /// Changes when any session ends.
    ended: watch::Receiver<()>,
    /// The digest of what was sent last.
    sent: Option<[u8; 32]>,
    /// Time until the next look.
    interval: Duration,
    /// `true` once the session has ended.
    is_over: bool,
    _share: Share<(String, IpAddr)>,
}

impl LivePage {
    /// Waits for the next event. Returns `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over || self.console.state.is_stopping() {
            return None;
        }
        if self.sent.is_some() {
            tokio::select! {
                () = sleep(self.interval) => {}
                _ = self.ended.changed() => {}
                () = self.console.state.stopped() => return None,
            }
        }
        let began = Instant::now();
        let answer = self.look().await;
        self.interval = (began.elapsed() * SHARE).clamp(INTERVAL, LONGEST_INTERVAL);
        let Some(answer) = answer else {
            self.is_over = true;
            return Some(Bytes::from(END));
        };
        // A page that fails, or has no memory, stays as it is until it can be read again, and says so.
        if let Ok(PageAnswer::Page(StatusCode::OK, page)) = answer
            && let Ok(memory) = self.console.memory(self.context.client(), &page)
        {
            let digest = Some(Sha256::digest(without_times(&page)).into());
            if digest != self.sent {
                self.sent = digest;
                return Some(memory.hold(event(&page)));
            }
        } else if self.sent != Some(FAILED) {
            self.sent = Some(FAILED);
            return Some(Bytes::from(STALE));
        }
        Some(Bytes::from(COMMENT))
    }

    /// Returns the page, or `None` if the session has ended.
    async fn look(&self) -> Option<Result<PageAnswer, RequestFailure>> {
        let session = self.console.session(&self.head.headers)?;
        let form = RequestForm::of_query(&self.head);
        let answer = self
            .console
            .visit(session, self.head.clone(), form, self.context.clone())
            .respond()
            .await;
        match answer {
            Err(failure) if failure.status == StatusCode::UNAUTHORIZED => {
                self.console.sessions.end(&self.head.headers);
                None
            }
            answer => Some(answer),
        }
    }
}

/// Returns the event for a page. A carriage return would end a line of it, too.
fn event(page: &str) -> String {
    let lines = page
        .split(['\r', '\n'])
        .map(|line| format!("data: {line}\n"));
    format!("event: page\n{}\n", lines.collect::<String>())
}

/// Returns a page without the times that the browser counts on its own.
fn without_times(page: &str) -> String {
    let mut parts = page.split("<time data-seconds=");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |page, part| {
        page + part.split_once("</time>").map_or(part, |(_, rest)| rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_same_if_only_times_differ() {
        let page = |seconds: u32, name: &str| {
            format!("<p><time data-seconds=\"{seconds}\">{seconds} s</time> {name}</p>")
        };
        assert_eq!(without_times(&page(1, "a")), "<p> a</p>");
        assert_eq!(
            without_times(&(page(1, "a") + &page(5, "b"))),
            "<p> a</p><p> b</p>"
        );
        assert_ne!(without_times(&page(1, "a")), without_times(&page(1, "b")));
    }

    #[test]
    fn no_line_of_a_page_is_a_field_of_an_event() {
        for (page, expected) in [
            ("a\nb", "event: page\ndata: a\ndata: b\n\n"),
            (
                "a\revent: end\r\ndata:",
                "event: page\ndata: a\ndata: event: end\ndata: \ndata: data:\n\n",
            ),
        ] {
            assert_eq!(event(page), expected);
        }
    }
}
