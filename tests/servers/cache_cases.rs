//! The cases of ifmatch-cache with `ifmatch proxy`, real sockets and a manual clock.

#[path = "../../crates/ifmatch-cache/tests/cache/case.rs"]
mod case;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock as _, SystemClock};
use ifmatch_testbed::faketime;
use support::raw::Connection;
use support::{Answer, Gateway};
use tempfile::TempDir;

use case::{Asking, Case, Got, Last, START, Telling};

/// Number of concurrent proxies.
const THREADS: usize = 4;

/// Number of attempts per case on a slow machine.
const TRIES: usize = 20;

#[test]
fn every_case_holds_with_content_length() {
    run_all(Framing::Length);
}

#[test]
fn every_case_holds_with_chunks() {
    run_all(Framing::Chunks);
}

/// Runs all cases with this framing at the origin.
fn run_all(framing: Framing) {
    let cases = case::all(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/ifmatch-cache/tests/data/cases"),
    );
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = run_exactly(case, framing) {
                        failures
                            .lock()
                            .unwrap()
                            .push(format!("{}: {why}", case.name));
                    }
                }
            });
        }
    });
    case::report(cases.len(), &failures.into_inner().unwrap());
}

/// Repeats a case until it is fast enough to be judged by whole seconds.
fn run_exactly(case: &Case, framing: Framing) -> Result<(), String> {
    for _ in 0..TRIES {
        let mut clock = Clock::new();
        let result = run(case, framing, &mut clock);
        if clock.is_exact() {
            return result;
        }
    }
    Err("this machine is too slow: it takes a second".to_owned())
}

/// Runs a case with its own proxy.
fn run(case: &Case, framing: Framing, clock: &mut Clock) -> Result<(), String> {
    let origin = Origin::start(framing);
    let mut command = Gateway::command();
    command.args([
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &origin.url(),
    ]);
    clock.apply_to(&mut command);
    let gateway = Gateway::launch(command);
    clock.start();
    let mut last = Last::default();
    for (at, step) in case.steps.iter().enumerate() {
        clock.advance(case::wait(step));
        let now = clock.unix();
        origin.will(case::telling(step, &mut last, now));
        let before = origin.count();
        let answer = ask(&gateway, &case::asking(step, now));
        if step["from"] == "any" {
            origin.settle();
        }
        let got = Got {
            status: answer.status,
            body: Ok(answer.text().to_owned()),
            headers: answer.headers,
            times: origin.count() - before,
            seen: origin.last(),
        };
        case::judge(step, &got, &last, now).map_err(|why| format!("step {}: {why}", at + 1))?;
    }
    Ok(())
}

fn ask(gateway: &Gateway, asking: &Asking) -> Answer {
    let Asking {
        method,
        path,
        fields,
    } = asking;
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if fields.iter().all(|(name, _)| name != "host") {
        head.push_str("host: origin.example\r\n");
    }
    for (name, value) in fields {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    let mut connection = Connection::open(gateway.address());
    connection.send(head + "\r\n");
    if method == "HEAD" {
        connection.answer_to_head()
    } else {
        connection.answer()
    }
}

/// Maximum duration of a case. Longer ones can't be judged by whole seconds.
const MOST: Duration = Duration::from_millis(900);

/// A clock for one process.
struct Clock {
    began: Timestamp,
    /// Offset from the system's clock in seconds.
    offset: f64,
    advanced: u64,
    folder: TempDir,
}

impl Clock {
    /// Creates a clock an hour before [`START`], for a process to start by.
    fn new() -> Self {
        let mut clock = Self {
            began: Timestamp::default(),
            offset: 0.0,
            advanced: 0,
            folder: tempfile::tempdir().unwrap(),
        };
        clock.begin(START.unsigned_abs() - 3600);
        clock
    }

    /// Advances to [`START`], once the process has started.
    fn start(&mut self) {
        self.begin(START.unsigned_abs());
    }

    fn begin(&mut self, at: u64) {
        self.began = SystemClock.now();
        self.offset = Duration::from_secs(at).as_secs_f64()
            - Timestamp::default().until(self.began).as_secs_f64();
        self.set();
    }

    /// Makes a new process use this clock.
    fn apply_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", faketime())
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .envs([
                ("FAKETIME_NO_CACHE", "1"),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ]);
    }

    fn advance(&mut self, seconds: u64) {
        if seconds > 0 {
            self.advanced += seconds;
            self.set();
        }
    }

    /// Returns whole seconds since the Unix epoch.
    fn unix(&self) -> i64 {
        START + self.advanced.cast_signed()
    }

    /// Returns `true` if less than [`MOST`] of real time has passed.
    fn is_exact(&self) -> bool {
        self.began.until(SystemClock.now()) < MOST
    }

    /// Writes the offset atomically.
    #[expect(
        clippy::cast_precision_loss,
        reason = "far fewer seconds than fifteen digits"
    )]
    fn set(&self) {
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{:+.6}", self.offset + self.advanced as f64)).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("now")
    }
}

/// Pause between two looks at the script.
const MOMENT: Duration = Duration::from_millis(10);

/// Default framing of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
}

/// An origin on a free port.
struct Origin {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    telling: Option<Telling>,
    seen: Vec<HeaderMap>,
}

impl Origin {
    fn start(framing: Framing) -> Self {
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
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Scripts the next response.
    fn will(&self, telling: Option<Telling>) {
        self.state.lock().unwrap().telling = telling;
    }

    /// Waits up to half a second until the script has run, since a proxy may ask the origin after it has responded.
    fn settle(&self) {
        let waits = || {
            matches!(
                self.state.lock().unwrap().telling,
                Some(Telling::Answers { .. })
            )
        };
        for _ in 0..50 {
            if !waits() {
                break;
            }
            thread::sleep(MOMENT);
        }
        thread::sleep(2 * MOMENT);
    }

    /// Returns the number of requests.
    fn count(&self) -> usize {
        self.state.lock().unwrap().seen.len()
    }

    /// Returns the header fields of the last request.
    fn last(&self) -> Option<HeaderMap> {
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
            Some(Telling::Answers {
                status,
                fields,
                body,
            }) => written(framing, &method, status, &fields, &body),
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
        (
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_bytes(value.trim().as_bytes()).unwrap(),
        )
    };
    let headers: HeaderMap = lines.map(field).collect();
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.to_str().unwrap().parse().unwrap());
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some((method, headers))
}

/// Formats a response. Returns `true` if the connection ends after it.
fn written(
    framing: Framing,
    method: &str,
    status: u16,
    fields: &[(String, String)],
    body: &str,
) -> (String, bool) {
    let mut text = format!("HTTP/1.1 {status} Status\r\n");
    for (name, value) in fields {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    let named = |wanted: &str| fields.iter().any(|(name, _)| name == wanted);
    let bodiless = method == "HEAD" || [204, 304].contains(&status);
    // A chunked part of the wrong length would be truncated, so the client gets no response.
    let framing = if named("content-range") {
        Framing::Length
    } else {
        framing
    };
    match framing {
        _ if bodiless => text.push_str("\r\n"),
        _ if named("content-length") => write!(text, "\r\n{body}").unwrap(),
        Framing::Length => write!(text, "content-length: {}\r\n\r\n{body}", body.len()).unwrap(),
        Framing::Chunks => {
            text.push_str("transfer-encoding: chunked\r\n\r\n");
            for chunk in body.as_bytes().chunks(3) {
                write!(
                    text,
                    "{:x}\r\n{}\r\n",
                    chunk.len(),
                    String::from_utf8_lossy(chunk)
                )
                .unwrap();
            }
            text.push_str("0\r\n\r\n");
        }
    }
    let closes = |(name, value): &(String, String)| name == "connection" && value.contains("close");
    (text, fields.iter().any(closes))
}
