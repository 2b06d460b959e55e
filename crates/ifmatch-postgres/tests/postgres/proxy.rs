//! A TCP proxy that cuts connections right after a commit, before its answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The end of an answer to a statement that changed one row.
const CHANGED: [&[u8]; 2] = [b"UPDATE 1\0", b"INSERT 0 1\0"];

/// A proxy. Its tasks end with the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cuts: Arc<AtomicUsize>,
    answers: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy that cuts the connection of every second change.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), cuts: Arc::default(), answers: Arc::default() };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let proxy = accepting.clone();
                tokio::spawn(async move { proxy.forward(client, server).await });
            }
        });
        proxy
    }

    /// Returns the number of connections that were cut.
    pub(crate) fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }

    async fn forward(&self, client: TcpStream, server: SocketAddr) {
        let Ok(server) = TcpStream::connect(server).await else { return };
        // Otherwise short messages wait for acknowledgements.
        client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).unwrap();
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let requests = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            if self.is_cut(&buffer[..read]) || to_client.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
        requests.abort();
    }

    fn is_cut(&self, answer: &[u8]) -> bool {
        let is_change = CHANGED.iter().any(|end| answer.windows(end.len()).any(|part| part == *end));
        let is_cut = is_change && self.answers.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        self.cuts.fetch_add(usize::from(is_cut), Ordering::SeqCst);
        is_cut
    }
}
