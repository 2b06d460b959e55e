//! One request to a server, to check its response before measuring.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use xtask::Result;

/// Generous time limit for a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// A response.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: u16,
    /// Header fields, with names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    /// Length of the content in bytes.
    pub(crate) len: usize,
}

impl Answer {
    /// Returns the value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(its, _)| its == name)
            .map(|(_, value)| value.as_str())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let fields = lines.filter_map(|line| line.split_once(": "));
        let fields = fields
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Some(Self {
            status,
            fields,
            len: bytes.len() - end - 4,
        })
    }
}

/// Sends a request with these field lines on a new connection.
pub(crate) fn ask(
    address: SocketAddr,
    line: &str,
    fields: &[String],
    content: &[u8],
) -> Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if !content.is_empty() {
        write!(head, "Content-Length: {}\r\n", content.len())?;
    }
    for field in fields {
        write!(head, "{field}\r\n")?;
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(content)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Answer::parse(&bytes).ok_or_else(|| format!("{address} answers {line} with no HTTP").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_taken_apart() {
        let answer =
            Answer::parse(b"HTTP/1.1 200 OK\r\nETag: \"a: b\"\r\nDate: now\r\n\r\nbody\r\n\r\n")
                .unwrap();
        assert_eq!((answer.status, answer.len), (200, 8));
        assert_eq!(answer.field("etag"), Some("\"a: b\""));
        assert_eq!(Answer::parse(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
