//! Throughput of content hashes compared with OpenSSL's SHA-256, in turns. Both use the CPU's instructions for it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(clippy::print_stdout, reason = "prints its table")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use ifmatch_core::digest::ContentHash;
use statistics::{ratio, row, spread};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

fn main() {
    println!("| bytes | ifmatch, MB/s | openssl, MB/s | ratio |");
    println!("|---|---|---|---|");
    for len in [1024, 65_536] {
        let (ours, theirs): (Vec<f64>, Vec<f64>) =
            (0..ROUNDS).map(|_| (ours(len), openssl(len))).unzip();
        let ratios = ratio(&ours, &theirs);
        let cells = [spread(ours, 0), spread(theirs, 0), spread(ratios, 2)];
        println!("{}", row(&len.to_string(), &cells));
    }
}

/// Returns megabytes per second.
fn ours(len: usize) -> f64 {
    let content = vec![b'x'; len];
    let start = Instant::now();
    let mut hashed = 0_u32;
    while start.elapsed() < ROUND {
        // About as much between two clock readings as OpenSSL does.
        for _ in 0..64 {
            black_box(ContentHash::of(black_box(&content)));
        }
        hashed += 64;
    }
    f64::from(hashed) * f64::from(u32::try_from(len).unwrap()) / start.elapsed().as_secs_f64() / 1e6
}

/// Returns OpenSSL's megabytes per second of wall-clock time.
fn openssl(len: usize) -> f64 {
    let seconds = ROUND.as_secs().to_string();
    let bytes = len.to_string();
    let args = [
        "speed", "-elapsed", "-mr", "-seconds", &seconds, "-bytes", &bytes, "sha256",
    ];
    let output = Command::new("openssl")
        .args(args)
        .output()
        .expect("openssl runs: apt-get install -y openssl");
    let text = String::from_utf8(output.stdout).unwrap();
    // +F:22:sha256:1234567890.12
    let line = text.lines().find(|line| line.starts_with("+F:")).unwrap();
    line.rsplit(':').next().unwrap().parse::<f64>().unwrap() / 1e6
}
