//! Detection of the HTTP version, before the first request is read.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

/// A major version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Start of the HTTP/2 preface (RFC 9113 §3.4) that no HTTP/1 method shares.
const PREFACE: &[u8] = b"PRI ";

/// Interval at which the rest of a partial preface is awaited.
const PAUSE: Duration = Duration::from_millis(5);

/// Peeks at the first bytes of a plain connection. Waits until there are enough; the caller sets a timeout.
///
/// # Errors
/// Fails if the connection breaks.
pub(super) async fn detect(stream: &TcpStream) -> io::Result<Protocol> {
    let mut start = [0; PREFACE.len()];
    let mut seen = 0;
    loop {
        let count = stream.peek(&mut start).await?;
        if start[..count] == *PREFACE {
            return Ok(Protocol::Http2);
        }
        // Anything else is HTTP/1, including a partial preface: hyper responds with an error.
        if count == 0 || start[..count] != PREFACE[..count] {
            return Ok(Protocol::Http1);
        }
        if count == seen {
            sleep(PAUSE).await;
        }
        seen = count;
    }
}

/// Returns the protocol that ALPN has selected, or HTTP/1 if it has selected none.
pub(super) fn from_alpn(selected: Option<&[u8]>) -> Protocol {
    if selected == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 }
}
