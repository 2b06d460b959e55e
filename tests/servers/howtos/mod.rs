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
use serde::Deserialize;
use support::origin::{Asked, Origin};
use support::raw::exchange;
use support::{Answer, Gateway, eventually};
use tempfile::TempDir;

/// A table in `data`, which explains its form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<Row>,
}

/// A row of a page, with configurations of theirs and ours.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The first cell of the row.
    cell: String,
    theirs: String,
    ours: String,
    acts: String,
}

/// A request, and what its origin answers if it gets it.
#[derive(Clone, Default)]
struct Request {
    method: String,
    host: String,
    path: String,
    /// Lines with their ends.
    fields: String,
    answer: String,
    /// Fields of the response that belong to the outcome.
    shown: Vec<String>,
    content: usize,
}

impl Request {
    /// Parses the part of an act before its outcome.
    fn parse(text: &str) -> Self {
        let (text, answer) = text.split_once(" <- ").unwrap_or((text, ""));
        let mut parts = text.split([' ', '{']);
        let first = parts.next().unwrap();
        let (method, target) = if first.contains('/') {
            ("GET", first)
        } else {
            (first, parts.next().unwrap())
        };
        let (host, path) = target.split_at(target.find('/').expect("a path"));
        let host = if host.is_empty() {
            "shop.example"
        } else {
            host
        };
        let fields = text
            .split('{')
            .skip(1)
            .map(|field| field.split('}').next().unwrap().to_owned() + "\r\n")
            .collect();
        let word = |start: &str| text.split(' ').find_map(|word| word.strip_prefix(start));
        Self {
            method: method.to_owned(),
            host: host.to_owned(),
            path: path.to_owned(),
            fields,
            answer: answer.to_owned(),
            shown: word("show=").map_or_else(Vec::new, |names| {
                names.split(',').map(str::to_owned).collect()
            }),
            content: word("+").map_or(0, |bytes| bytes.parse().expect("a number of bytes")),
        }
    }
}

/// A GET of this path.
fn get(path: &str, answer: &str) -> Request {
    Request::parse(&format!("{path} <- {answer}"))
}

/// A file for `ifmatch proxy` with a route for all requests to the first origin, and these settings of it.
fn route(settings: &str) -> String {
    format!("[[proxy.route]]\nmatch = \"/\"\nupstream = [\"http://@A@\"]\n{settings}\n")
}

/// A server in front of its own origins.
struct Side {
    address: SocketAddr,
    origins: Origins,
    folder: TempDir,
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
        drop(
            self.opened
                .wait_timeout_while(guard, LIMIT, |is_open| !*is_open)
                .unwrap(),
        );
    }
}

impl Origins {
    fn start() -> Self {
        let gate = Arc::<Gate>::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let of = |name| origin(any, name, &gate);
        Self {
            a: of("a"),
            b: of("b"),
            dead: Port::claim(),
            revived: None,
            gate,
        }
    }

    /// Replaces the names of the origins and of the folder in a configuration.
    fn fill(&self, text: &str, folder: &Path) -> String {
        let at = |address: SocketAddr| (address.to_string(), address.port().to_string());
        let [(a, a_port), (b, b_port)] = [at(self.a.address()), at(self.b.address())];
        let dead = self.dead.address().to_string();
        let pairs = [
            ("@A@", &a),
            ("@B@", &b),
            ("@APORT@", &a_port),
            ("@BPORT@", &b_port),
            ("@DEAD@", &dead),
        ];
        let text = pairs
            .into_iter()
            .fold(text.to_owned(), |text, (name, value)| {
                text.replace(name, value)
            });
        text.replace("@DIR@", folder.to_str().unwrap())
    }
}

/// Starts an origin that answers as its requests say. The content has its name, and the number of requests for the path so far.
fn origin(address: SocketAddr, name: &'static str, gate: &Arc<Gate>) -> Origin {
    let (gate, counts) = (Arc::clone(gate), Mutex::new(HashMap::<String, u32>::new()));
    Origin::converse_at(address, move |asked, stream| {
        let path = asked.head.split(' ').nth(1).unwrap().to_owned();
        let count = *counts
            .lock()
            .unwrap()
            .entry(path.clone())
            .and_modify(|count| *count += 1)
            .or_insert(1);
        let sick = if path == "/health" && name == "a" {
            "503"
        } else {
            "200"
        };
        match response(
            asked,
            asked.field("answer").unwrap_or(sick),
            &format!("{name}{count} {path}"),
            &gate,
        ) {
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
            Some(("echo", name)) => {
                content.extend([" ", name, "=", asked.field(name).unwrap_or("-")]);
            }
            Some(("close", name)) if content.starts_with(name) => return None,
            Some(("close", _)) => {}
            Some(_) => fields.extend([part, "\r\n"]),
        }
    }
    let tag = fields.lines().find_map(|line| line.strip_prefix("etag: "));
    if tag.is_some() && asked.field("if-none-match") == tag {
        return Some(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
    }
    let content = if status == "204" {
        String::new()
    } else {
        content
    };
    Some(format!(
        "HTTP/1.1 {status} Any\r\ncontent-length: {}\r\n{fields}\r\n{content}",
        content.len()
    ))
}

impl Request {
    fn send(&self, address: SocketAddr) -> Answer {
        let Self {
            method,
            host,
            path,
            fields,
            answer,
            content,
            ..
        } = self;
        let length = if *content > 0 || method == "POST" {
            format!("content-length: {content}\r\n")
        } else {
            String::new()
        };
        let answer = if answer.is_empty() {
            String::new()
        } else {
            format!("answer: {answer}\r\n")
        };
        let content = "x".repeat(*content);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{fields}{length}{answer}\r\n"
        );
        exchange(address, head + &content)
    }

    /// Returns the status, the content of an origin, and the shown fields.
    fn outcome(&self, address: SocketAddr) -> String {
        let answer = self.send(address);
        let mut outcome = answer.status.as_u16().to_string();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let is_of_origin = ["a", "b", "dead"].iter().any(|name| {
            text.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        });
        if is_of_origin {
            outcome.extend([" ", &text]);
        }
        for name in &self.shown {
            for value in answer.headers.get_all(name) {
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
        (Self::of(gateway.address(), origins, folder), gateway)
    }

    fn of(address: SocketAddr, origins: Origins, folder: TempDir) -> Self {
        Self {
            address,
            origins,
            folder,
            begun: Vec::new(),
        }
    }

    /// Carries a row out, and returns the outcomes that differ from those that it states.
    fn run(&mut self, name: &str, row: &Row) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut check = |what: &str, found: String, expected: &str| {
            if found != expected {
                wrong.push(format!(
                    "{}: {name}: {what}: {found:?} instead of {expected:?}",
                    row.cell
                ));
            }
        };
        for act in row.acts.lines() {
            let (other, own) = if name == "ifmatch" {
                ("theirs ", "ours ")
            } else {
                ("ours ", "theirs ")
            };
            if act.starts_with(other) {
                continue;
            }
            let (act, expected) = act.split_once(" -> ").unwrap_or((act, ""));
            let act = act.strip_prefix(own).unwrap_or(act);
            match act {
                "end" => {
                    self.origins.gate.open();
                    for begun in self.begun.drain(..) {
                        check(act, begun.join().unwrap(), expected);
                    }
                }
                "pass" => thread::sleep(Duration::from_millis(2_100)),
                "checked" => eventually("a second check of each origin", || {
                    let checks = |origin: &Origin| {
                        origin
                            .asked()
                            .iter()
                            .filter(|asked| asked.head.contains("/health"))
                            .count()
                    };
                    let Origins { a, b, .. } = &self.origins;
                    (checks(a) > 1 && checks(b) > 1).then_some(())
                }),
                "revive" => {
                    let Origins {
                        dead,
                        revived,
                        gate,
                        ..
                    } = &mut self.origins;
                    *revived = Some(origin(dead.address(), "dead", gate));
                }
                "log" => {
                    let file = self.folder.path().join("access.log");
                    let line = eventually("a line in the access log", || {
                        let text = fs::read_to_string(&file).unwrap_or_default();
                        text.lines()
                            .next()
                            .filter(|_| text.ends_with('\n'))
                            .map(str::to_owned)
                    });
                    let (before, rest) = line.split_once('[').unwrap_or_default();
                    let after = rest.split_once(']').unwrap_or_default().1;
                    check(act, format!("{before}[]{after}"), expected);
                }
                _ => match act.split_once(' ') {
                    Some(("until", request)) => {
                        let request = Request::parse(request);
                        eventually(&format!("{}: {name}: {act}: {expected}", row.cell), || {
                            (request.outcome(self.address) == expected).then_some(())
                        });
                    }
                    Some(("begin", request)) => {
                        let (request, address, before) =
                            (Request::parse(request), self.address, self.held());
                        self.begun
                            .push(thread::spawn(move || request.outcome(address)));
                        // One that waits for another reaches no origin.
                        if self.begun.len() == 1 {
                            eventually("a request that an origin holds", || {
                                (self.held() > before).then_some(())
                            });
                        }
                    }
                    _ => check(act, Request::parse(act).outcome(self.address), expected),
                },
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
    let table = page
        .split_once("\n## Settings\n")
        .unwrap()
        .1
        .split_once("\n## ")
        .unwrap()
        .0;
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .skip(1);
    rows.map(|row| row.split(" | ").next().unwrap().to_owned())
        .collect()
}

/// Returns the rows of a table, which match its page's, apart from the ones named with the reason why nothing is compared.
fn rows(table: &str, page: &str, others: &[(&str, &str)]) -> Vec<Row> {
    let Table { row: rows } = toml::from_str(table).unwrap();
    let tested: BTreeSet<String> = rows
        .iter()
        .map(|row| &*row.cell)
        .chain(others.iter().map(|(cell, _)| *cell))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        cells(page),
        tested,
        "the rows of the page, and those of the test"
    );
    rows
}
