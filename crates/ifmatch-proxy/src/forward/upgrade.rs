//! Upgraded connections, such as `WebSocket` tunnels.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use crate::forward::headers;

/// Idle timeout of a tunnel.
const IDLE: Duration = Duration::from_hours(1);
/// Maximum time for both ends to switch protocols.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Buffer size for each direction.
const BUFFER: usize = 16 * 1024;

type Io = TokioIo<Upgraded>;

/// A client's request to switch to another protocol.
pub(crate) struct UpgradeRequest {
    protocols: HeaderValue,
    client: OnUpgrade,
}

impl UpgradeRequest {
    /// Returns `None` if the request offers no protocol that can be forwarded.
    pub(crate) fn of<B>(request: &mut Request<B>) -> Option<Self> {
        let protocols = headers::requested_upgrade(request.version(), request.headers())?;
        Some(Self { protocols, client: hyper::upgrade::on(request) })
    }

    /// Returns `true` if the response names only protocols that the client offered.
    pub(crate) fn accepts(&self, answer: &HeaderMap) -> bool {
        headers::is_requested(answer, &self.protocols)
    }

    /// Copies bytes between the two ends until both have closed, or until both are idle for too long.
    pub(crate) async fn tunnel(self, upstream: OnUpgrade) {
        let client = self.client;
        let both = timeout(HANDSHAKE, async { tokio::try_join!(client, upstream) });
        match both.await {
            Ok(Ok((client, upstream))) => {
                let (from_client, to_client) = split(TokioIo::new(client));
                let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
                tokio::join!(pass(from_client, to_upstream), pass(from_upstream, to_client));
            }
            Ok(Err(error)) => tracing::debug!(%error, "an upgrade failed"),
            Err(_) => tracing::debug!("an upgrade timed out"),
        }
    }
}

async fn pass(mut from: ReadHalf<Io>, mut to: WriteHalf<Io>) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(Ok(count @ 1..)) = timeout(IDLE, from.read(&mut buffer)).await {
        if to.write_all(&buffer[..count]).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    // Half-close: the other direction may continue.
    drop(to.shutdown().await);
}
