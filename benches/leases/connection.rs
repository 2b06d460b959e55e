//! A minimal HTTP client: the load must cost less than the servers.

use std::io::Write as _;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum number of field lines, more than any server sends.
const MAX_FIELDS: usize = 64;

/// A persistent connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// The needed parts of a response.
pub(crate) struct Reply {
    status: u16,
    tag: Option<String>,
    content_length: usize,
}

impl Reply {
    /// Returns the tag of a response with this status.
    pub(crate) fn expect(self, status: u16) -> Option<String> {
        assert_eq!(self.status, status);
        self.tag
    }
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, address, sent: Vec::new(), received: Vec::new() }
    }

    /// Sends a request other than HEAD, and reads the response.
    pub(crate) async fn exchange(&mut self, request: &Request<Bytes>) -> Reply {
        self.sent.clear();
        let (method, uri, length) = (request.method(), request.uri(), request.body().len());
        write!(self.sent, "{method} {uri} HTTP/1.1\r\nhost: {}\r\n", self.address).unwrap();
        if length == 0 {
            self.sent.extend_from_slice(b"content-length: 0\r\n");
        }
        for (name, value) in request.headers() {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                self.sent.extend_from_slice(part);
            }
        }
        self.sent.extend_from_slice(b"\r\n");
        self.sent.extend_from_slice(request.body());
        self.stream.write_all(&self.sent).await.unwrap();
        self.answer().await
    }

    async fn answer(&mut self) -> Reply {
        self.received.clear();
        loop {
            if let Some((head, reply)) = parse(&self.received)
                && self.received.len() == head + reply.content_length
            {
                return reply;
            }
            let count = self.stream.read_buf(&mut self.received).await.unwrap();
            assert_ne!(count, 0, "the server closed the connection");
        }
    }
}

/// Parses a head, and returns its length, or `None` while it is incomplete.
fn parse(received: &[u8]) -> Option<(usize, Reply)> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head) = response.parse(received).unwrap() else { return None };
    let field = |name: &str| {
        let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(field.value).ok()
    };
    assert_eq!(field("transfer-encoding"), None, "this client reads no coded content");
    let content_length = field("content-length").map_or(0, |length| length.parse().unwrap());
    Some((head, Reply { status: response.code.unwrap(), tag: field("etag").map(str::to_owned), content_length }))
}
