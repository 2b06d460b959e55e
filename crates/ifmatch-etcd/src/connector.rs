//! A connector that opens one TCP stream, and a watch that knows when it has ended.
//!
//! When a stream ends, tonic reconnects on its own. Another cluster could respond there unnoticed, so each stream
//! belongs to one [`MemberConnection`](crate::cluster::MemberConnection), which has seen the cluster's identity.

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
pub(crate) struct StreamWatch(Weak<()>);

impl StreamWatch {
    /// Returns `true` after the end of the stream. Nothing more is sent on it.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Returns a connector that connects once, without delay of small packets, and a watch of its stream.
pub(crate) fn connect_once() -> (
    impl Service<
        Uri,
        Response = impl Read + Write + Send + Unpin,
        Error = Error,
        Future = impl Future + Send,
    > + Send,
    StreamWatch,
) {
    let alive = Arc::new(());
    let watch = StreamWatch(Arc::downgrade(&alive));
    let mut alive = Some(alive);
    let connect = move |uri: Uri| {
        let alive = alive.take();
        async move {
            let ended = || Error::new(ErrorKind::NotConnected, "the connection has ended");
            let alive = alive.ok_or_else(ended)?;
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(PORT))).await?;
            stream.set_nodelay(true)?;
            // The reader owns `alive`, which is dropped with the stream.
            let stream = InspectReader::new(stream, move |_| _ = &alive);
            Ok::<_, Error>(TokioIo::new(stream))
        }
    };
    (service_fn(connect), watch)
}
