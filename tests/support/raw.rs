//! HTTP/1.1 by hand: sends arbitrary bytes, also from a data file of cases, and reads responses by their framing.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::net::TcpSocket;
use tokio::runtime::Builder;

use crate::Answer;

/// Timeout of the server, far beyond the expected time.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum number of headers in a response.
const MAX_HEADERS: usize = 128;

/// A connection to a server.
pub struct Connection {
    stream: TcpStream,
    /// Bytes read but not yet consumed.
    buffer: Vec<u8>,
}

/// Sends a complete request on a new connection and reads the response.
pub fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut connection = Connection::open(address);
    connection.send(request);
    connection.answer()
}

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}")))
    }

    /// Connects as another client, from this address of the machine.
    pub fn open_from(source: IpAddr, address: SocketAddr) -> Self {
        let connect = async {
            let socket = if source.is_ipv4() {
                TcpSocket::new_v4()
            } else {
                TcpSocket::new_v6()
            }?;
            socket.bind((source, 0).into())?;
            socket.connect(address).await?.into_std()
        };
        let connected = Builder::new_current_thread()
            .enable_io()
            .build()
            .and_then(|runtime| runtime.block_on(connect));
        let stream = connected.unwrap_or_else(|error| panic!("{address} from {source}: {error}"));
        stream
            .set_nonblocking(false)
            .expect("a socket that can wait");
        Self::over(stream)
    }

    fn over(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a positive timeout");
        stream
            .set_write_timeout(Some(TIMEOUT))
            .expect("a positive timeout");
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server accepts the bytes");
    }

    /// Sends these bytes to a server that may have closed the connection.
    ///
    /// # Errors
    /// Fails if it has.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Shuts down the sending side.
    pub fn finish_sending(&self) {
        // An error means that the server has already closed the connection.
        drop(self.stream.shutdown(Shutdown::Write));
    }

    /// Reads the next response, including interim ones (1xx).
    pub fn answer(&mut self) -> Answer {
        self.read(false)
    }

    /// Waits for a response. Returns `false` if the server closes the connection instead.
    pub fn is_answered(&mut self) -> bool {
        !self.buffer.is_empty() || self.fill()
    }

    /// Reads the next response, or returns `None` if the server closes the connection instead.
    pub fn answer_unless_closed(&mut self) -> Option<Answer> {
        self.is_answered().then(|| self.answer())
    }

    /// Reads the response to a HEAD request, which has no content.
    pub fn answer_to_head(&mut self) -> Answer {
        self.read(true)
    }

    /// Returns everything the server sends until it closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    fn read(&mut self, to_head: bool) -> Answer {
        let (status, headers) = self.head();
        let empty = to_head || status.is_informational() || matches!(status.as_u16(), 204 | 304);
        let mut trailers = HeaderMap::new();
        let body = if empty {
            Vec::new()
        } else if headers
            .get("transfer-encoding")
            .is_some_and(|coding| coding == "chunked")
        {
            let body = self.chunks();
            trailers = self.trailers();
            body
        } else if let Some(length) = headers.get("content-length") {
            let length = length
                .to_str()
                .ok()
                .and_then(|length| length.parse().ok())
                .expect("a decimal Content-Length");
            self.take(length)
        } else {
            self.rest()
        };
        Answer {
            status,
            headers,
            body: Bytes::from(body),
            trailers,
        }
    }

    fn head(&mut self) -> (StatusCode, HeaderMap) {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut response = httparse::Response::new(&mut fields);
            if let httparse::Status::Complete(length) = response
                .parse(&self.buffer)
                .expect("a well-formed response")
            {
                let status = response
                    .code
                    .and_then(|code| StatusCode::from_u16(code).ok())
                    .expect("a status code");
                let headers = header_map(response.headers);
                self.buffer.drain(..length);
                return (status, headers);
            }
            assert!(
                self.fill(),
                "closed before the end of the head: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        }
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            if let Ok(httparse::Status::Complete((start, size))) =
                httparse::parse_chunk_size(&self.buffer)
            {
                self.buffer.drain(..start);
                if size == 0 {
                    return body;
                }
                body.extend(
                    self.take(usize::try_from(size).expect("a chunk that fits into memory")),
                );
                assert_eq!(self.take(2), b"\r\n", "the end of a chunk");
            } else {
                assert!(self.fill(), "closed in the middle of a chunked body");
            }
        }
    }

    fn trailers(&mut self) -> HeaderMap {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let parsed =
                httparse::parse_headers(&self.buffer, &mut fields).expect("well-formed trailers");
            if let httparse::Status::Complete((length, fields)) = parsed {
                let trailers = header_map(fields);
                self.buffer.drain(..length);
                return trailers;
            }
            assert!(self.fill(), "closed before the end of the trailers");
        }
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(
                self.fill(),
                "closed after {} of {length} bytes",
                self.buffer.len()
            );
        }
        let rest = self.buffer.split_off(length);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads more bytes. Returns `false` at the end of the connection.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(read) => {
                self.buffer.extend_from_slice(&chunk[..read]);
                read > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            // A read with a time limit isn't restarted after the machine was paused (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => self.fill(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!(
                    "the server sent nothing for {TIMEOUT:?}, after {:?}",
                    String::from_utf8_lossy(&self.buffer)
                )
            }
            Err(error) => panic!("{error}, after {:?}", String::from_utf8_lossy(&self.buffer)),
        }
    }
}

fn header_map(fields: &[httparse::Header<'_>]) -> HeaderMap {
    let field = |field: &httparse::Header<'_>| {
        let name = HeaderName::from_bytes(field.name.as_bytes()).expect("a field name");
        (
            name,
            HeaderValue::from_bytes(field.value).expect("a field value"),
        )
    };
    fields.iter().map(field).collect()
}

/// Bytes to send, and the expected statuses until the connection ends.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the case.
    pub name: String,
    /// Bytes to send.
    pub sent: Vec<u8>,
    /// The statuses in order, or `-` for none.
    pub statuses: Vec<String>,
}

/// Parses a file of cases: a name, then `> ` and the bytes to send (several lines are joined), then `< ` and the
/// statuses.
///
/// In the bytes: `\r \n \t \0 \\ \xNN`, and `{N*X}` for X, N times.
pub fn cases(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut name = "";
    let mut sent = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(bytes) = line.strip_prefix("> ") {
            sent.extend(unescape(bytes));
        } else if let Some(statuses) = line.strip_prefix("< ") {
            let statuses = statuses.split(' ').map(str::to_owned).collect();
            cases.push(Case {
                name: name.to_owned(),
                sent: std::mem::take(&mut sent),
                statuses,
            });
        } else {
            name = line;
        }
    }
    cases
}

/// Sends these bytes, shuts down the sending side, and reads the statuses of all responses.
pub fn statuses(address: SocketAddr, sent: &[u8]) -> Vec<String> {
    let mut connection = Connection::open(address);
    // The server may close before everything is sent, after a response.
    if connection.try_send(sent).is_ok() {
        connection.finish_sending();
    }
    let answers = connection.rest();
    let starts = answers
        .windows(9)
        .enumerate()
        .filter(|(_, bytes)| *bytes == b"HTTP/1.1 " || *bytes == b"HTTP/1.0 ");
    let statuses: Vec<_> = starts
        .map(|(at, _)| String::from_utf8_lossy(&answers[at + 9..at + 12]).into_owned())
        .collect();
    if statuses.is_empty() {
        vec!["-".to_owned()]
    } else {
        statuses
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '{' => {
                let (count, repeated) = rest.split_once('*').expect("{N*X}");
                let (repeated, after) = repeated.split_once('}').expect("{N*X}");
                bytes.extend(unescape(repeated).repeat(count.parse().expect("a number")));
                rest = after;
            }
            '\\' => {
                let (escape, after) = rest.split_at(1);
                rest = after;
                bytes.push(match escape {
                    "r" => b'\r',
                    "n" => b'\n',
                    "t" => b'\t',
                    "0" => 0,
                    "\\" => b'\\',
                    "x" => {
                        let (digits, after) = rest.split_at(2);
                        rest = after;
                        u8::from_str_radix(digits, 16).expect("two digits")
                    }
                    other => panic!("\\{other} in {text}"),
                });
            }
            other => bytes.extend(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}
