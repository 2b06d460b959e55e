//! An origin with scripted responses, byte by byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// An origin on a free port, which records its requests.
pub struct Origin {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method, path and fields, in lower case.
    pub head: String,
    /// The content.
    pub content: Vec<u8>,
}

impl Origin {
    /// Responds to each request with the bytes that the function returns.
    pub fn start<T: AsRef<[u8]>>(answer: impl Fn(&Asked) -> T + Send + Sync + 'static) -> Self {
        Self::converse(move |asked, stream| {
            // The proxy may have disconnected.
            drop(stream.write_all(answer(asked).as_ref()));
        })
    }

    /// Gives the function access to the stream.
    pub fn converse(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::converse_at(SocketAddr::from(([127, 0, 0, 1], 0)), answer)
    }

    /// Does the same at this address.
    pub fn converse_at(
        address: SocketAddr,
        answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (answer, seen) = (Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
                    while let Some(asked) = read(&mut reader) {
                        seen.lock().expect("no panic").push(asked.clone());
                        answer(&asked, &mut stream);
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// Returns its URL, for `--upstream`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Asked {
    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Reads the next request, or returns `None` at the end of the connection.
fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut asked = Asked {
        head: head.to_ascii_lowercase(),
        content: Vec::new(),
    };
    let length = asked
        .field("content-length")
        .map_or(0, |length| length.parse().expect("a length"));
    asked.content.resize(length, 0);
    reader.read_exact(&mut asked.content).ok()?;
    if asked.field("transfer-encoding").is_some() {
        asked.content = chunks(reader)?;
    }
    Some(asked)
}

/// Reads chunked content, without its trailers.
fn chunks(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim_end(), 16).expect("a size");
        let mut chunk = vec![0; size];
        reader.read_exact(&mut chunk).ok()?;
        content.extend(chunk);
        // An empty line ends each chunk. After the last one, trailers come before it.
        while reader.read_line(&mut String::new()).ok()? > 2 {}
        if size == 0 {
            return Some(content);
        }
    }
}

/// Returns a complete response with these fields.
pub fn ok(fields: &str, content: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{fields}\r\n{content}",
        content.len()
    )
}
