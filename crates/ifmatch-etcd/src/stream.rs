//! The TCP streams of connections.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Weak};

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::io::InspectReader;
use tower::Service;
use tower::util::service_fn;

use crate::address::PORT;

/// Knows when a stream has ended.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Weak<()>);

impl Watch {
    /// Returns `true` after the end of the stream. Nothing is sent on it any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Returns a connector that connects once, without delay of small packets, and a watch of its stream.
///
/// When a stream ends, tonic connects again by itself. Another cluster could answer there unnoticed, so each stream belongs
/// to one [`Open`](crate::connection::Open) connection, which has seen the cluster's identity.
pub(crate) fn once() -> (
    impl Service<Uri, Response = impl Read + Write + Send + Unpin, Error = Error, Future = impl Future + Send> + Send,
    Watch,
) {
    let alive = Arc::new(());
    let watch = Watch(Arc::downgrade(&alive));
    let mut alive = Some(alive);
    let connect = move |uri: Uri| {
        let alive = alive.take();
        async move {
            let alive = alive.ok_or_else(|| Error::new(ErrorKind::NotConnected, "the connection has ended"))?;
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(PORT))).await?;
            stream.set_nodelay(true)?;
            Ok::<_, Error>(TokioIo::new(InspectReader::new(stream, move |_| _ = &alive)))
        }
    };
    (service_fn(connect), watch)
}
