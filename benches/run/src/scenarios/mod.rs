//! The shared cache compared with others in what operators meet: scans, slow readers, a slow origin, and ranges of a large
//! object.

mod client;
mod origin;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::caches::{self, Sizes};
use crate::report;
use crate::subject::Subject;
use client::Client;
use origin::{LARGE, Origin, SMALL};
use xtask::Result;

/// Number of objects that are requested again and again.
const HOT: u64 = 1_000;
/// Number of clients of the slow object.
const CROWD: usize = 32;
/// Number of slow readers of the large object.
const READERS: usize = 20;
/// The part of the large object that is requested twice.
const PART: (u64, u64) = (500_000_000, 599_999_999);

const NAMES: [&str; 4] = ["ifmatch", "nginx", "varnish", "Traffic Server"];

/// Measures and prints the table.
pub(crate) fn run(gateway: &Path, quick: bool, dir: &Path) -> Result {
    let dir = dir.join("scenarios");
    let mut cells: Vec<Vec<String>> = Vec::new();
    let small = Sizes {
        memory: 32 << 20,
        disk: None,
    };
    let large = Sizes {
        memory: 2 << 30,
        disk: Some(8 << 30),
    };
    for at in 0..NAMES.len() {
        let measure =
            |sizes: Sizes, scenario: &dyn Fn(&Origin, SocketAddr) -> Result<Vec<String>>| {
                fs::create_dir_all(&dir)?;
                let origin = Origin::start()?;
                let upstream = Subject::of("origin", origin.address);
                let subject = caches::with_sizes(at, gateway, &upstream, sizes, &dir)?;
                let measured = scenario(&origin, subject.address());
                drop(subject);
                // Gigabytes of bodies.
                fs::remove_dir_all(&dir)?;
                measured
            };
        let mut column = measure(small, &|origin, address| {
            scan(origin, address, if quick { 3_000 } else { 15_000 })
        })?;
        column.extend(measure(large, &|_, address| slow_readers(address))?);
        let seconds = if quick { 3 } else { 10 };
        column.extend(measure(large, &|origin, address| {
            microcache(origin, address, Duration::from_secs(seconds))
        })?);
        column.extend(measure(large, &range_twice)?);
        cells.push(column);
    }
    let rows = [
        "hit ratio of the hot set under a scan",
        "1 fast and 20 slow readers of 1 GiB: seconds of the fast one",
        "microcaching, max-age=1, 200 ms: requests to the origin per second",
        "microcaching: p99, ms",
        "100 MB of 1 GiB: MB from the origin at the first read",
        "100 MB of 1 GiB: MB from the origin at the second read",
    ];
    println!(
        "{}",
        report::table("scenario", &rows, &NAMES, |row, column| cells[column][row]
            .clone())
    );
    Ok(())
}

/// Requests a hot set that fits, and twice as many objects that are requested once. Returns the hit ratio of the hot set in
/// the second half.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts, of which fifteen digits are enough"
)]
fn scan(origin: &Origin, address: SocketAddr, count: u64) -> Result<Vec<String>> {
    let mut client = Client::connect(address)?;
    let (mut asked, mut before, mut random) = (0_u64, 0, 1_u64);
    for at in 0..count {
        if at == count / 2 {
            (asked, before) = (0, origin.requests("hot"));
        }
        let path = if at % 3 == 0 {
            asked += 1;
            // Knuth's generator.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            format!("/hot/{}", (random >> 33) % HOT)
        } else {
            format!("/once/{at}")
        };
        expect(client.get(&path, "")?, 200)?;
    }
    let missed = origin.requests("hot") - before;
    Ok(vec![format!(
        "{:.2}",
        1.0 - missed as f64 / asked.max(1) as f64
    )])
}

/// Returns the seconds that a client takes for the large object while others read it slowly.
fn slow_readers(address: SocketAddr) -> Result<Vec<String>> {
    let done = Arc::new(AtomicBool::new(false));
    let slow: Vec<_> = (0..READERS)
        .map(|_| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let mut client = Client::connect(address).ok()?;
                client.begin("/large", "").ok()?;
                // 1 MB/s.
                while !done.load(Ordering::SeqCst) {
                    client
                        .read(100_000, u64::MAX, Duration::from_millis(100))
                        .ok()?;
                }
                Some(())
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    let mut client = Client::connect(address)?;
    let head = client.begin("/large", "")?;
    if head.len != LARGE {
        return Err(format!("{} bytes of {LARGE}", head.len).into());
    }
    client.read(LARGE, u64::MAX, Duration::ZERO)?;
    let took = began.elapsed();
    done.store(true, Ordering::SeqCst);
    let read = slow
        .into_iter()
        .filter_map(|reader| reader.join().ok().flatten())
        .count();
    let cut = READERS - read;
    Ok(vec![format!(
        "{:.1}{}",
        took.as_secs_f64(),
        if cut > 0 {
            format!(" ({cut} cut off)")
        } else {
            String::new()
        }
    )])
}

/// Returns the requests to a slow origin per second, and the 99th percentile of the clients' times in milliseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts, of which fifteen digits are enough"
)]
fn microcache(origin: &Origin, address: SocketAddr, time: Duration) -> Result<Vec<String>> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (before, end) = (origin.requests("slow"), Instant::now() + time);
    let clients: Vec<_> = (0..CROWD)
        .map(|_| {
            let times = Arc::clone(&times);
            thread::spawn(move || -> std::result::Result<(), String> {
                let mut client = Client::connect(address).map_err(|error| error.to_string())?;
                let mut own = Vec::new();
                while Instant::now() < end {
                    let began = Instant::now();
                    let status = client.get("/slow", "").map_err(|error| error.to_string())?;
                    expect(status, 200).map_err(|error| error.to_string())?;
                    own.push(began.elapsed());
                    thread::sleep(Duration::from_millis(5));
                }
                times
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(own);
                Ok(())
            })
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner).clone();
    times.sort();
    let p99 = times
        .get(times.len() * 99 / 100)
        .copied()
        .unwrap_or_default();
    let rate = (origin.requests("slow") - before) as f64 / time.as_secs_f64();
    Ok(vec![
        format!("{rate:.1}"),
        format!("{:.0}", p99.as_secs_f64() * 1e3),
    ])
}

/// Returns the megabytes that the origin sends for two equal ranges.
fn range_twice(origin: &Origin, address: SocketAddr) -> Result<Vec<String>> {
    let range = format!("range: bytes={}-{}\r\n", PART.0, PART.1);
    let mut megabytes = Vec::new();
    for _ in 0..2 {
        let before = origin.bytes();
        expect(Client::connect(address)?.get("/large", &range)?, 206)?;
        // Some caches continue in the background.
        let mut sent = origin.bytes();
        loop {
            thread::sleep(Duration::from_millis(500));
            if origin.bytes() == sent {
                break;
            }
            sent = origin.bytes();
        }
        megabytes.push(((sent - before) / 1_000_000).to_string());
    }
    Ok(megabytes)
}

fn expect(status: u16, expected: u16) -> Result {
    if status == expected {
        Ok(())
    } else {
        Err(format!("status {status} in place of {expected}").into())
    }
}

/// The hot set fits into the small caches, with room to spare.
const _: () = assert!(HOT * SMALL < 24 << 20);
