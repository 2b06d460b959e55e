//! Test cases from a data file: bytes to send and expected statuses.

use std::net::SocketAddr;

use crate::raw::Connection;

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
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(bytes) = line.strip_prefix("> ") {
            sent.extend(unescape(bytes));
        } else if let Some(statuses) = line.strip_prefix("< ") {
            let statuses = statuses.split(' ').map(str::to_owned).collect();
            cases.push(Case { name: name.to_owned(), sent: std::mem::take(&mut sent), statuses });
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
    let starts = answers.windows(9).enumerate().filter(|(_, bytes)| *bytes == b"HTTP/1.1 " || *bytes == b"HTTP/1.0 ");
    let statuses: Vec<_> =
        starts.map(|(at, _)| String::from_utf8_lossy(&answers[at + 9..at + 12]).into_owned()).collect();
    if statuses.is_empty() { vec!["-".to_owned()] } else { statuses }
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
