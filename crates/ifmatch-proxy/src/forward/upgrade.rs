//! Upgraded connections, such as `WebSocket` tunnels.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::forward::headers;

/// Idle timeout of a tunnel.
const IDLE: Duration = Duration::from_hours(1);
/// Maximum time for both ends to switch protocols.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Buffer size for each direction, in bytes.
const BUFFER: usize = 16 * 1024;

/// A client's request to switch to another protocol.
pub(crate) struct UpgradeRequest {
    protocols: HeaderValue,
    client: OnUpgrade,
}

impl UpgradeRequest {
    /// Returns `None` if the request offers no protocol that can be forwarded.
    pub(crate) fn of<B>(request: &mut Request<B>) -> Option<Self> {
        let protocols = headers::requested_upgrade(request.version(), request.headers())?;
        Some(Self {
            protocols,
            client: hyper::upgrade::on(request),
        })
    }

    /// Returns `true` if the response names only protocols that the client offered.
    pub(crate) fn accepts(&self, answer: &HeaderMap) -> bool {
        headers::is_requested(answer, &self.protocols)
    }

    /// Connects the two ends once both have switched protocols.
    pub(crate) async fn tunnel(self, upstream: OnUpgrade) {
        let client = self.client;
        let both = timeout(HANDSHAKE, async { tokio::try_join!(client, upstream) });
        match both.await {
            Ok(Ok((client, upstream))) => {
                connect(TokioIo::new(client), TokioIo::new(upstream)).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "an upgrade failed"),
            Err(_) => tracing::debug!("an upgrade timed out"),
        }
    }
}

/// Copies bytes between the two ends until both have closed, or until nothing was copied for too long: neither end sends,
/// or the other one doesn't read.
async fn connect(client: impl AsyncRead + AsyncWrite, upstream: impl AsyncRead + AsyncWrite) {
    let (from_client, to_client) = split(client);
    let (from_upstream, to_upstream) = split(upstream);
    let copied = Notify::new();
    let both = async {
        tokio::join!(
            pass(from_client, to_upstream, &copied),
            pass(from_upstream, to_client, &copied)
        )
    };
    let idle = async { while timeout(IDLE, copied.notified()).await.is_ok() {} };
    tokio::select! {
        _ = both => {}
        () = idle => {}
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, copied: &Notify) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() || to.flush().await.is_err() {
            break;
        }
        copied.notify_one();
    }
    // Half-close: the other direction may continue.
    drop(to.shutdown().await);
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_to_a_client_that_does_not_read_is_closed() {
        let (_client, ours) = duplex(64);
        let (mut upstream, theirs) = duplex(64);
        let sending = tokio::spawn(async move { upstream.write_all(&[0; 1_000]).await });
        let closed = timeout(10 * IDLE, connect(ours, theirs)).await;
        assert!(closed.is_ok(), "it stays open");
        assert!(
            sending.await.expect("no panic").is_err(),
            "the upstream learns of it"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_stays_open_while_one_end_sends() {
        let (mut client, ours) = duplex(64);
        let (mut upstream, theirs) = duplex(64);
        let tunnel = tokio::spawn(connect(ours, theirs));
        let mut byte = [0];
        for _ in 0..10 {
            sleep(IDLE / 2).await;
            upstream.write_all(b"x").await.expect("an open tunnel");
            client.read_exact(&mut byte).await.expect("an open tunnel");
        }
        client.write_all(b"y").await.expect("an open tunnel");
        upstream
            .read_exact(&mut byte)
            .await
            .expect("both directions are open");
        assert_eq!(byte, *b"y");
        drop((client, upstream));
        tunnel.await.expect("it ends with both ends");
    }
}
