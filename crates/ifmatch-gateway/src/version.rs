//! Which version of HTTP a client speaks, before anything of it is read.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

/// A version with its own way of talking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// How an HTTP/2 client begins (RFC 9113 §3.4), as far as no method of HTTP/1 begins.
const PREFACE: &[u8] = b"PRI ";

/// How long to wait for the rest of a preface that came in parts.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks at the first bytes without taking them. Waits until there are enough; the caller bounds the time.
///
/// # Errors
/// The connection broke.
pub(crate) async fn of_plain(stream: &TcpStream) -> io::Result<Protocol> {
    let mut start = [0; PREFACE.len()];
    let mut seen = 0;
    loop {
        let count = stream.peek(&mut start).await?;
        if start[..count] == *PREFACE {
            return Ok(Protocol::Http2);
        }
        // Another beginning is HTTP/1, and so is one that does not go on: hyper says what is wrong with it.
        if count == 0 || start[..count] != PREFACE[..count] {
            return Ok(Protocol::Http1);
        }
        if count == seen {
            sleep(PAUSE).await;
        }
        seen = count;
    }
}

/// What was agreed on in a TLS handshake; a client that agreed on nothing speaks HTTP/1.
pub(crate) fn of_alpn(agreed: Option<&[u8]>) -> Protocol {
    if agreed == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 }
}
