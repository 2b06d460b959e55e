//! The cases of ifmatch-cache with `ifmatch proxy`, real sockets and a manual clock.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../crates/ifmatch-cache/tests/cache/case.rs"]
mod case;
mod clock;
mod origin;

use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::raw::Connection;
use support::{Answer, Gateway};

use case::{Asking, Case, Got, Last};
use clock::Clock;
use origin::{Framing, Origin};

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
    let cases = case::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/ifmatch-cache/tests/data/cases"));
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = run_exactly(case, framing) {
                        failures.lock().unwrap().push(format!("{}: {why}", case.name));
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
    command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", &origin.url()]);
    clock.rules(&mut command);
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
    let Asking { method, path, fields } = asking;
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if fields.iter().all(|(name, _)| name != "host") {
        head.push_str("host: origin.example\r\n");
    }
    for (name, value) in fields {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    let mut connection = Connection::open(gateway.address());
    connection.send(head + "\r\n");
    if method == "HEAD" { connection.answer_to_head() } else { connection.answer() }
}
