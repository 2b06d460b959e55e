//! Processes with clocks that disagree. The server tells the time: permits and leases don't depend on the processes' clocks.
//!
//! The test binary starts one process of itself for each clock, with libfaketime.

use std::process::{Command as Process, Stdio};
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Authority, Begin, Command, Content, LeaseOperation, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{LeaseAction, LeaseDuration};
use ifmatch_core::precondition::Preconditions;
use ifmatch_postgres::PostgresRegister;
use ifmatch_register::{Driver, Key};
use ifmatch_runtime::nonce;
use ifmatch_testbed::{faketime, within};
use rustix::time::{ClockId, clock_gettime};

use crate::start;

/// Name of this test, which the other processes run.
const TEST: &str = "clocks::no_two_processes_hold_a_permit_or_a_lease_at_once";
/// Environment variable of the other processes: the server's URL.
const URL: &str = "IFMATCH_CLOCKS_URL";
/// Errors of the clocks, all beyond the duration of permits and leases.
const ERRORS: [&str; 3] = ["-300s", "+0s", "+300s"];
const TTL: Duration = Duration::from_secs(1);
/// The time before its permit's end at which a handler ends: see `Driver`.
const MARGIN: Duration = Duration::from_millis(100);
/// Number of permits that each process holds until they end.
const PERMITS: usize = 3;
/// Begins a line with the start and the end of a permit.
const HELD: &str = "held: ";
/// Begins a line with the outcome of an attempt at the lease.
const LEASED: &str = "leased: ";

#[tokio::test(flavor = "multi_thread")]
async fn no_two_processes_hold_a_permit_or_a_lease_at_once() {
    if let Ok(url) = std::env::var(URL) {
        return Box::pin(one_of_them(&url)).await;
    }
    let server = start().await;
    let url = server.url();
    // A lease needs a resource.
    let content = Content::Hashed {
        hash: ContentHash::of(b"x"),
        payload: b"x".to_vec().into(),
    };
    let write = Write::new(
        &Method::PUT,
        &Preconditions::NONE,
        content,
        nonce().unwrap(),
    );
    driver(&url)
        .await
        .apply(&Key::new("leased").unwrap(), &Command::Write(write))
        .await
        .unwrap();
    let processes = ERRORS.map(|error| {
        let mut process = Process::new(std::env::current_exe().unwrap());
        process
            .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
            .env(URL, &url)
            .stdout(Stdio::piped());
        process
            .env("LD_PRELOAD", faketime())
            .env("FAKETIME", error)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        process.spawn().unwrap()
    });
    let (mut held, mut leased): (Vec<(u64, u64)>, Vec<bool>) = (Vec::new(), Vec::new());
    for process in processes {
        let output = tokio::task::block_in_place(|| process.wait_with_output()).unwrap();
        assert!(
            output.status.success(),
            "a process fails: {}",
            output.status
        );
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some((start, end)) = line
                .strip_prefix(HELD)
                .and_then(|times| times.split_once(' '))
            {
                held.push((start.parse().unwrap(), end.parse().unwrap()));
            }
            leased.extend(line.strip_prefix(LEASED).map(|outcome| outcome == "true"));
        }
    }
    held.sort_unstable();
    assert_eq!(held.len(), ERRORS.len() * PERMITS);
    let overlap = held.windows(2).find(|pair| pair[1].0 < pair[0].1);
    assert_eq!(overlap, None, "two processes hold a permit at once");
    assert_eq!(
        leased.iter().filter(|leased| **leased).count(),
        1,
        "one process holds the lease: {leased:?}"
    );
}

async fn driver(url: &str) -> Driver {
    let register = PostgresRegister::connect(url).await.expect("a server runs");
    Driver::new(register)
        .assume_absent()
        .with_patience(Duration::ZERO)
}

/// Holds permits until they end, as a handler does that hangs, and tries to acquire a lease.
#[expect(clippy::print_stdout, reason = "the first process reads it")]
async fn one_of_them(url: &str) {
    let driver = driver(url).await;
    let lease = LeaseAction::Acquire {
        id: uuid(nonce().unwrap()).parse().unwrap(),
        duration: LeaseDuration::from_seconds(60).unwrap(),
        holder: None,
    };
    let acquire = LeaseOperation::new(lease, &Preconditions::NONE, nonce().unwrap())
        .with_authority(Authority::Register);
    let outcome = driver
        .apply(&Key::new("leased").unwrap(), &Command::Lease(acquire))
        .await
        .unwrap()
        .outcome;
    println!("\n{LEASED}{}", matches!(outcome, Outcome::Leased(_)));
    for _ in 0..PERMITS {
        let (start, end) = within("a permit", hold(&driver)).await;
        println!("\n{HELD}{start} {end}");
    }
}

/// Waits for a permit and holds it. Returns the first and the last moment at which this process knew that it holds it.
async fn hold(driver: &Driver) -> (u64, u64) {
    let key = Key::new("written").unwrap();
    loop {
        let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL);
        // While the server's time isn't known precisely, no permit is granted.
        if let Ok((applied, _lock)) = driver
            .begin(
                &key,
                None,
                begin.with_authority(Authority::Register),
                |_| false,
            )
            .await
            && let Outcome::Granted(grant) = applied.outcome
        {
            let start = monotonic();
            let mut end = start;
            loop {
                let now = monotonic();
                if driver.now().saturating_add(MARGIN) >= grant.deadline {
                    return (start, end);
                }
                end = now;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns nanoseconds by a clock that all processes of the machine share.
fn monotonic() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    u64::try_from(time.as_nanos()).unwrap()
}

/// Returns a lease id that contains most of a number.
fn uuid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{:012x}", number >> 16)
}
