//! The how-tos for users of nginx and Varnish: each row of their tables runs beside the real one. Both get the same requests, in
//! front of origins that answer alike, and have the outcome that the row of the test states.

mod nginx;
mod varnish;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ifmatch_testbed::{LIMIT, Port};
use support::raw::exchange;
use support::{Answer, Gateway};

use crate::eventually;
use crate::proxy::origin::{Asked, Origin};

/// A row of a page, with configurations of theirs and ours. `@A@` and `@B@` are origins, `@DEAD@` is a port without one at first,
/// `@DIR@` is a folder.
struct Row {
    /// The first cell of the row.
    cell: &'static str,
    theirs: String,
    ours: String,
    acts: Vec<Act>,
}

/// What happens to both, in order.
enum Act {
    /// A request, with its outcome.
    Ask(Request, &'static str),
    /// Requests that differ, since each has its own interface.
    Each { theirs: (Request, &'static str), ours: (Request, &'static str) },
    /// A request until it has this outcome.
    Until(Request, &'static str),
    /// A request that waits for its origin, in the background.
    Begin(Request),
    /// The origins answer what waits, and the requests in the background have this outcome.
    End(&'static str),
    /// Lifetimes of a second pass.
    Pass,
    /// The servers know if the origins are well: each was asked again.
    Checked,
    /// An origin begins to serve at the port that had none.
    Revive,
    /// The line of each one's access log, without its time.
    Log { theirs: &'static str, ours: &'static str },
}

/// A request, and what its origin answers if it gets it: a status and fields, separated by ` | `. Also `close`, `hold`, which waits
/// for the end of the row, and `echo NAME`, which adds a field of the request to the content.
#[derive(Clone, Copy)]
struct Request {
    method: &'static str,
    host: &'static str,
    path: &'static str,
    /// Lines with their ends.
    fields: &'static str,
    answer: &'static str,
    /// Fields of the response that belong to the outcome.
    shown: &'static [&'static str],
    content: usize,
}

/// A GET of this path.
fn get(path: &'static str, answer: &'static str) -> Request {
    Request { method: "GET", host: "shop.example", path, fields: "", answer, shown: &[], content: 0 }
}

/// A GET twice: the second outcome is the first one if it was stored.
fn twice(path: &'static str, answer: &'static str, outcomes: [&'static str; 2]) -> Vec<Act> {
    outcomes.map(|outcome| Act::Ask(get(path, answer), outcome)).into()
}

/// A file for `ifmatch proxy` with a route for all requests to the first origin, and these settings of it.
fn route(settings: &str) -> String {
    format!("[[proxy.route]]\nmatch = \"/\"\nupstream = [\"http://@A@\"]\n{settings}\n")
}

/// A server in front of its own origins.
struct Side {
    address: SocketAddr,
    origins: Origins,
    folder: tempfile::TempDir,
    begun: Vec<JoinHandle<String>>,
}

/// Two origins, and the port for a third one.
struct Origins {
    a: Origin,
    b: Origin,
    dead: Port,
    revived: Option<Origin>,
    gate: Arc<Gate>,
}

/// What `hold` waits for.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let guard = self.is_open.lock().unwrap();
        drop(self.opened.wait_timeout_while(guard, LIMIT, |is_open| !*is_open).unwrap());
    }
}

impl Origins {
    fn start() -> Self {
        let gate = Arc::<Gate>::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let of = |name| origin(any, name, &gate);
        Self { a: of("a"), b: of("b"), dead: Port::claim(), revived: None, gate }
    }

    /// Replaces the names of the origins and of the folder in a configuration.
    fn fill(&self, text: &str, folder: &Path) -> String {
        let at = |address: SocketAddr| (address.to_string(), address.port().to_string());
        let [(a, a_port), (b, b_port)] = [at(self.a.address()), at(self.b.address())];
        let dead = self.dead.address().to_string();
        let pairs = [("@A@", &a), ("@B@", &b), ("@APORT@", &a_port), ("@BPORT@", &b_port), ("@DEAD@", &dead)];
        let text = pairs.into_iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
        text.replace("@DIR@", folder.to_str().unwrap())
    }
}

/// Starts an origin that answers as its requests say. The content has its name, and the number of requests for the path so far.
fn origin(address: SocketAddr, name: &'static str, gate: &Arc<Gate>) -> Origin {
    let (gate, counts) = (Arc::clone(gate), Mutex::new(HashMap::<String, u32>::new()));
    Origin::converse_at(address, move |asked, stream| {
        let path = asked.head.split(' ').nth(1).unwrap().to_owned();
        let count = *counts.lock().unwrap().entry(path.clone()).and_modify(|count| *count += 1).or_insert(1);
        let sick = if path == "/health" && name == "a" { "503" } else { "200" };
        match response(asked, asked.field("answer").unwrap_or(sick), &format!("{name}{count} {path}"), &gate) {
            // The proxy may have disconnected.
            Some(text) => {
                drop(stream.write_all(text.as_bytes()));
                if asked.field("connection") == Some("close") {
                    drop(stream.shutdown(Shutdown::Write));
                }
            }
            None => drop(stream.shutdown(Shutdown::Both)),
        }
    })
}

/// Returns the response of an origin, or `None` to close the connection.
fn response(asked: &Asked, answer: &str, content: &str, gate: &Gate) -> Option<String> {
    let (mut status, mut fields, mut content) = ("200", String::new(), content.to_owned());
    for part in answer.split(" | ") {
        match part.split_once(' ') {
            None if part == "close" => return None,
            None if part == "hold" => gate.wait(),
            None => status = part,
            Some(("echo", name)) => content.extend([" ", name, "=", asked.field(name).unwrap_or("-")]),
            Some(("close", name)) if content.starts_with(name) => return None,
            Some(("close", _)) => {}
            Some(_) => fields.extend([part, "\r\n"]),
        }
    }
    let tag = fields.lines().find_map(|line| line.strip_prefix("etag: "));
    if tag.is_some() && asked.field("if-none-match") == tag {
        return Some(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
    }
    let content = if status == "204" { String::new() } else { content };
    Some(format!("HTTP/1.1 {status} Any\r\ncontent-length: {}\r\n{fields}\r\n{content}", content.len()))
}

impl Request {
    fn send(self, address: SocketAddr) -> Answer {
        let Self { method, host, path, fields, answer, content, .. } = self;
        let length =
            if content > 0 || method == "POST" { format!("content-length: {content}\r\n") } else { String::new() };
        let answer = if answer.is_empty() { String::new() } else { format!("answer: {answer}\r\n") };
        let content = "x".repeat(content);
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{fields}{length}{answer}\r\n");
        exchange(address, head + &content)
    }

    /// Returns the status, the content of an origin, and the shown fields.
    fn outcome(self, address: SocketAddr) -> String {
        let answer = self.send(address);
        let mut outcome = answer.status.as_u16().to_string();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let is_of_origin = ["a", "b", "dead"].iter().any(|name| {
            text.strip_prefix(name).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        });
        if is_of_origin {
            outcome.extend([" ", &text]);
        }
        for name in self.shown {
            for value in answer.headers.get_all(*name) {
                outcome.extend([" | ", name, ": ", value.to_str().unwrap()]);
            }
        }
        outcome
    }
}

impl Side {
    fn ours(row: &Row) -> (Self, Gateway) {
        let (origins, folder) = (Origins::start(), tempfile::tempdir().unwrap());
        let file = folder.path().join("proxy.toml");
        fs::write(&file, origins.fill(&row.ours, folder.path())).unwrap();
        let gateway = Gateway::start(["proxy", "--config", file.to_str().unwrap()]);
        (Self { address: gateway.address(), origins, folder, begun: Vec::new() }, gateway)
    }

    /// Carries a row out, and returns the outcomes that differ from those that it states.
    fn run(&mut self, name: &str, row: &Row) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut check = |what: &str, found: String, expected: &str| {
            if found != expected {
                wrong.push(format!("{}: {name}: {what}: {found:?} instead of {expected:?}", row.cell));
            }
        };
        for (at, act) in row.acts.iter().enumerate() {
            let what = format!("act {}", at + 1);
            match act {
                Act::Ask(request, expected) => check(&what, request.outcome(self.address), expected),
                Act::Each { theirs, ours } => {
                    let (request, expected) = if name == "ifmatch" { ours } else { theirs };
                    check(&what, request.outcome(self.address), expected);
                }
                Act::Until(request, expected) => {
                    eventually(&format!("{}: {name}: {what}: {expected}", row.cell), || {
                        (request.outcome(self.address) == *expected).then_some(())
                    });
                }
                Act::Begin(request) => {
                    let (request, address, before) = (*request, self.address, self.held());
                    self.begun.push(thread::spawn(move || request.outcome(address)));
                    // One that waits for another reaches no origin.
                    if self.begun.len() == 1 {
                        eventually("a request that an origin holds", || (self.held() > before).then_some(()));
                    }
                }
                Act::End(expected) => {
                    self.origins.gate.open();
                    for begun in self.begun.drain(..) {
                        check(&what, begun.join().unwrap(), expected);
                    }
                }
                Act::Pass => thread::sleep(Duration::from_millis(2_100)),
                Act::Checked => eventually("a second check of each origin", || {
                    let checks =
                        |origin: &Origin| origin.asked().iter().filter(|asked| asked.head.contains("/health")).count();
                    let Origins { a, b, .. } = &self.origins;
                    (checks(a) > 1 && checks(b) > 1).then_some(())
                }),
                Act::Revive => {
                    let Origins { dead, revived, gate, .. } = &mut self.origins;
                    *revived = Some(origin(dead.address(), "dead", gate));
                }
                Act::Log { theirs, ours } => {
                    let file = self.folder.path().join("access.log");
                    let line = eventually("a line in the access log", || {
                        let text = fs::read_to_string(&file).unwrap_or_default();
                        text.lines().next().filter(|_| text.ends_with('\n')).map(str::to_owned)
                    });
                    let (before, rest) = line.split_once('[').unwrap_or_default();
                    let after = rest.split_once(']').unwrap_or_default().1;
                    check(&what, format!("{before}[]{after}"), if name == "ifmatch" { ours } else { theirs });
                }
            }
        }
        self.origins.gate.open();
        wrong
    }

    /// Returns the number of requests that the origins got.
    fn held(&self) -> usize {
        self.origins.a.asked().len() + self.origins.b.asked().len()
    }
}

/// Returns the first cells of the table of settings on a page.
fn cells(page: &str) -> BTreeSet<String> {
    let table = page.split_once("\n## Settings\n").unwrap().1.split_once("\n## ").unwrap().0;
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    rows.map(|row| row.split(" | ").next().unwrap().to_owned()).collect()
}

/// Requires that the rows of a page are those of a test, and those that it names with the reason why nothing is to be compared.
fn require_all(page: &str, rows: &[Row], others: &[(&str, &str)]) {
    let tested: BTreeSet<String> =
        rows.iter().map(|row| row.cell).chain(others.iter().map(|(cell, _)| *cell)).map(str::to_owned).collect();
    assert_eq!(cells(page), tested, "the rows of the page, and those of the test");
}
