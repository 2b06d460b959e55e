//! A minimal HTTP client: the load must cost less than the servers.

use std::io::Write as _;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, header};
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
    pub(crate) status: u16,
    tag: Option<String>,
    content_length: usize,
    /// `true` if the server closes the connection.
    closes: bool,
}

impl Reply {
    /// Returns the tag of a response with one of these statuses.
    pub(crate) fn expect(self, statuses: &[u16]) -> Option<String> {
        assert!(
            statuses.contains(&self.status),
            "{} is not one of {statuses:?}",
            self.status
        );
        self.tag
    }
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            address,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Sends a request other than HEAD, and reads the response.
    pub(crate) async fn exchange(&mut self, request: &Request<Bytes>) -> Reply {
        self.sent.clear();
        let (method, uri, length) = (request.method(), request.uri(), request.body().len());
        write!(self.sent, "{method} {uri} HTTP/1.1\r\n").unwrap();
        if !request.headers().contains_key(header::HOST) {
            write!(self.sent, "host: {}\r\n", self.address).unwrap();
        }
        if !request.headers().contains_key(header::CONTENT_LENGTH) {
            write!(self.sent, "content-length: {length}\r\n").unwrap();
        }
        for (name, value) in request.headers() {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                self.sent.extend_from_slice(part);
            }
        }
        self.sent.extend_from_slice(b"\r\n");
        self.sent.extend_from_slice(request.body());
        self.stream.write_all(&self.sent).await.unwrap();
        let reply = self.answer().await;
        if reply.closes {
            self.stream = Self::open(self.address).await.stream;
        }
        reply
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
    let httparse::Status::Complete(head) = response.parse(received).unwrap() else {
        return None;
    };
    let field = |name: &str| {
        let field = response
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(field.value).ok()
    };
    assert_eq!(
        field("transfer-encoding"),
        None,
        "this client reads no coded content"
    );
    let content_length = field("content-length").map_or(0, |length| length.parse().unwrap());
    let closes = response.version == Some(0) || field("connection") == Some("close");
    let tag = field("etag").map(str::to_owned);
    Some((
        head,
        Reply {
            status: response.code.unwrap(),
            tag,
            content_length,
            closes,
        },
    ))
}
