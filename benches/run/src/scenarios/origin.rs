//! An origin that counts requests and bytes: small objects, a slow one, and one of 1 GiB.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use xtask::Result;

/// Length of the large object.
pub(super) const LARGE: u64 = 1 << 30;
/// Length of a small object.
pub(super) const SMALL: u64 = 20_000;
/// Response time of the slow object.
const SLOW: Duration = Duration::from_millis(200);
/// Size of a write.
const PIECE: usize = 256 << 10;

/// A running origin.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    /// Requests by the first segment of the path.
    requests: Mutex<HashMap<String, u64>>,
    bytes: AtomicU64,
}

impl Origin {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, counted) = (listener.local_addr()?, Arc::<Counted>::default());
        let shared = Arc::clone(&counted);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&shared);
                // A cache may disconnect.
                thread::spawn(move || drop(serve(&stream, &counted)));
            }
        });
        Ok(Self { address, counted })
    }

    /// Returns the number of requests for paths that begin with this segment.
    pub(super) fn requests(&self, segment: &str) -> u64 {
        let requests = self
            .counted
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        requests.get(segment).copied().unwrap_or_default()
    }

    /// Returns the number of body bytes sent.
    pub(super) fn bytes(&self) -> u64 {
        self.counted.bytes.load(Ordering::SeqCst)
    }
}

fn serve(stream: &TcpStream, counted: &Counted) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let piece = vec![b'x'; PIECE];
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
        let mut range = None;
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line)?;
            range = parse_range(&line).or(range);
        }
        let segment = path
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        *counted
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(segment.clone())
            .or_default() += 1;
        let (len, lifetime) = match segment.as_str() {
            "large" => (LARGE, 3_600),
            "slow" => (SMALL, 1),
            _ => (SMALL, 3_600),
        };
        if segment == "slow" {
            thread::sleep(SLOW);
        }
        let (start, end) = range.map_or((0, len - 1), |(start, end)| {
            (start, end.unwrap_or(len - 1).min(len - 1))
        });
        let status = match range {
            Some(_) => format!("206 Partial Content\r\ncontent-range: bytes {start}-{end}/{len}"),
            None => "200 OK".to_owned(),
        };
        let mut left = end + 1 - start;
        write!(
            writer,
            "HTTP/1.1 {status}\r\ncontent-length: {left}\r\ncache-control: max-age={lifetime}\r\netag: \"1\"\r\naccept-ranges: bytes\r\n\r\n"
        )?;
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            writer.write_all(&piece[..now])?;
            counted.bytes.fetch_add(now as u64, Ordering::SeqCst);
            left -= now as u64;
        }
    }
}

fn parse_range(line: &str) -> Option<(u64, Option<u64>)> {
    let line = line.trim_end().to_ascii_lowercase();
    let (start, end) = line.strip_prefix("range: bytes=")?.split_once('-')?;
    Some((start.parse().ok()?, end.parse().ok()))
}
