//! An origin that gives the scripted response to the next request, and 599 to others.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::case::Telling;

const MOMENT: Duration = Duration::from_millis(10);

/// Default framing of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunks,
}

/// An origin on a free port.
pub(crate) struct Origin {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    telling: Option<Telling>,
    seen: Vec<HeaderMap>,
}

impl Origin {
    pub(crate) fn start(framing: Framing) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || converse(stream, framing, &shared));
            }
        });
        Self { address, state }
    }

    /// Returns the URL for `--upstream`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Scripts the next response.
    pub(crate) fn will(&self, telling: Option<Telling>) {
        self.state.lock().unwrap().telling = telling;
    }

    /// Waits until the script has run, since a proxy may ask the origin after it has responded.
    pub(crate) fn settle(&self) {
        let waits = || matches!(self.state.lock().unwrap().telling, Some(Telling::Answers { .. }));
        for _ in 0..50 {
            if !waits() {
                break;
            }
            thread::sleep(MOMENT);
        }
        thread::sleep(2 * MOMENT);
    }

    /// Returns the number of requests.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().seen.len()
    }

    /// Returns the header fields of the last request.
    pub(crate) fn last(&self) -> Option<HeaderMap> {
        self.state.lock().unwrap().seen.last().cloned()
    }
}

/// Serves a connection until it ends, or until the script closes it.
fn converse(mut stream: TcpStream, framing: Framing, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((method, headers)) = read(&mut reader) {
        let telling = {
            let mut state = state.lock().unwrap();
            state.seen.push(headers);
            match state.telling {
                // The proxy may retry an aborted request.
                Some(Telling::Fails) => Some(Telling::Fails),
                _ => state.telling.take(),
            }
        };
        let (response, ends) = match telling {
            Some(Telling::Fails) => return,
            Some(Telling::Answers { status, fields, body }) => written(framing, &method, status, &fields, &body),
            None => written(framing, &method, 599, &[], "unexpected request"),
        };
        // The test notices if the proxy is gone.
        drop(stream.write_all(response.as_bytes()));
        if ends {
            return;
        }
    }
}

/// Reads the next request, and returns its method and header fields.
fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, HeaderMap)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut lines = head.trim_end().lines();
    let method = lines.next()?.split(' ').next()?.to_owned();
    let field = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.trim().as_bytes()).unwrap())
    };
    let headers: HeaderMap = lines.map(field).collect();
    let length = headers.get("content-length").map_or(0, |length| length.to_str().unwrap().parse().unwrap());
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some((method, headers))
}

/// Formats a response. Returns `true` if the connection ends after it.
fn written(framing: Framing, method: &str, status: u16, fields: &[(String, String)], body: &str) -> (String, bool) {
    let mut text = format!("HTTP/1.1 {status} Status\r\n");
    for (name, value) in fields {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    let named = |wanted: &str| fields.iter().any(|(name, _)| name == wanted);
    let bodiless = method == "HEAD" || [204, 304].contains(&status);
    // A chunked part of the wrong length would be truncated, so that the client gets no response.
    let framing = if named("content-range") { Framing::Length } else { framing };
    match framing {
        _ if bodiless => text.push_str("\r\n"),
        _ if named("content-length") => write!(text, "\r\n{body}").unwrap(),
        Framing::Length => write!(text, "content-length: {}\r\n\r\n{body}", body.len()).unwrap(),
        Framing::Chunks => {
            text.push_str("transfer-encoding: chunked\r\n\r\n");
            for chunk in body.as_bytes().chunks(3) {
                write!(text, "{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)).unwrap();
            }
            text.push_str("0\r\n\r\n");
        }
    }
    let closes = |(name, value): &(String, String)| name == "connection" && value.contains("close");
    (text, fields.iter().any(closes))
}
