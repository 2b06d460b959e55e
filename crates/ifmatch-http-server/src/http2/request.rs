//! A request on its stream: its header fields in the form of HTTP/1, which other recipients expect, and its body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Error, RecvStream};
use http::header::{self, COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::interim::InterimSender;

/// The content of one stream. Reading it opens the flow-control window.
///
/// A reset is an error regardless of its code. `NO_ERROR` lets servers end a stream early (RFC 9113 §8.1), and doesn't
/// mean that the content is complete.
#[derive(Debug)]
pub(crate) struct StreamBody {
    stream: RecvStream,
    /// Number of bytes still expected, if the client has declared a length.
    remaining: Option<u64>,
    /// `true` once everything but the trailers has been read.
    in_trailers: bool,
    /// Sends `100 Continue` at the first read, if the client expects it.
    expects_continue: Option<InterimSender>,
}

impl StreamBody {
    /// Reads the content of `stream` after these headers.
    pub(super) fn new(
        headers: &HeaderMap,
        stream: RecvStream,
        expects_continue: Option<InterimSender>,
    ) -> Self {
        // h2 has verified that it is a single number, and enforces it.
        let remaining = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        Self {
            stream,
            remaining,
            in_trailers: false,
            expects_continue,
        }
    }

    /// Reads the next bytes, and lets the client send as many more.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let polled = self.stream.poll_data(cx);
        if let Some(interim) = self.expects_continue.take().filter(|_| polled.is_pending()) {
            interim.send(StatusCode::CONTINUE, HeaderMap::new());
        }
        polled.map_ok(|bytes| {
            // Fails if the stream has ended, when it doesn't matter.
            drop(self.stream.flow_control().release_capacity(bytes.len()));
            self.remaining = self
                .remaining
                .map(|remaining| remaining.saturating_sub(bytes.len() as u64));
            bytes
        })
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if !self.in_trailers {
            if let Some(data) = ready!(self.poll_data(cx)) {
                return Poll::Ready(Some(data.map(Frame::data)));
            }
            self.in_trailers = true;
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Removes white space around values. RFC 9113 §8.2.1 calls such a request malformed. As in HTTP/1, the white space isn't part of
/// the value, so `Cookie`, `If-Match` and others mean the same to every recipient behind this server.
pub(super) fn trim(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let trimmed = value.as_bytes().trim_ascii();
        if trimmed.len() == value.len() {
            continue;
        }
        if let Ok(mut trimmed) = HeaderValue::from_bytes(trimmed) {
            trimmed.set_sensitive(value.is_sensitive());
            *value = trimmed;
        }
    }
}

/// Joins the split fields into the single one that other recipients expect (RFC 9113 §8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else {
        return;
    };
    let mut cookie = first.to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        cookie.extend_from_slice(b"; ");
        cookie.extend_from_slice(crumb);
    }
    if let Ok(mut cookie) = HeaderValue::from_bytes(&cookie) {
        cookie.set_sensitive(true);
        headers.insert(COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, ETAG};

    use super::*;

    #[test]
    fn blanks_are_removed_around_values_only() {
        let fields = [(ETAG, " \t\"a b\" "), (COOKIE, "a=b; c=d"), (COOKIE, "  ")];
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        trim(&mut headers);
        let values: Vec<_> = headers
            .iter()
            .map(|(_, value)| value.to_str().unwrap())
            .collect();
        assert_eq!(values, ["\"a b\"", "a=b; c=d", ""]);
    }

    #[test]
    fn split_cookies_are_joined_in_order() {
        for (crumbs, cookie) in [
            (&[][..], &[][..]),
            (&["a=1"], &["a=1"]),
            (&["a=1", "b=\u{e9}", "", "c=3"], &["a=1; b=\u{e9}; ; c=3"]),
        ] {
            let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("*/*"))]);
            for crumb in crumbs {
                headers.append(COOKIE, HeaderValue::from_bytes(crumb.as_bytes()).unwrap());
            }
            join_cookies(&mut headers);
            let joined: Vec<_> = headers
                .get_all(COOKIE)
                .iter()
                .map(HeaderValue::as_bytes)
                .collect();
            assert_eq!(
                joined,
                cookie
                    .iter()
                    .map(|cookie| cookie.as_bytes())
                    .collect::<Vec<_>>()
            );
        }
    }
}
