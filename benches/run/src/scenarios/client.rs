//! An HTTP/1.1 client that reads at a chosen rate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use xtask::Result;

/// A connection for one request after the other.
pub(super) struct Client(BufReader<TcpStream>);

/// A response without its content.
pub(super) struct Head {
    pub(super) status: u16,
    /// Length of the content.
    pub(super) len: u64,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(2)))?;
        Ok(Self(BufReader::with_capacity(256 << 10, stream)))
    }

    /// Sends a request, and reads the head of the response.
    pub(super) fn begin(&mut self, path: &str, fields: &str) -> Result<Head> {
        write!(
            self.0.get_mut(),
            "GET {path} HTTP/1.1\r\nhost: bench\r\n{fields}\r\n"
        )?;
        let mut head = Head { status: 0, len: 0 };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err("the cache closed the connection".into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                head.status = rest
                    .get(..3)
                    .and_then(|digits| digits.parse().ok())
                    .unwrap_or_default();
            } else if let Some(len) = line.strip_prefix("content-length: ") {
                head.len = len.parse()?;
            } else if line.is_empty() {
                return Ok(head);
            }
        }
    }

    /// Reads the content, pausing after each `piece` bytes.
    pub(super) fn read(&mut self, mut left: u64, piece: u64, pause: Duration) -> Result {
        while left > 0 {
            let now = left.min(piece);
            let read = std::io::copy(
                &mut Read::by_ref(&mut self.0).take(now),
                &mut std::io::sink(),
            )?;
            if read < now {
                return Err(format!("{} bytes are missing", left - read).into());
            }
            left -= now;
            if !pause.is_zero() {
                sleep(pause);
            }
        }
        Ok(())
    }

    /// Sends a request, and reads the whole response. Returns its status.
    pub(super) fn get(&mut self, path: &str, fields: &str) -> Result<u16> {
        let head = self.begin(path, fields)?;
        self.read(head.len, u64::MAX, Duration::ZERO)?;
        Ok(head.status)
    }
}
