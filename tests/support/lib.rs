//! Test support: starts the real binary and real servers, and talks to them over real sockets.
//!
//! - Clients: `client` (async, with a pool), `raw` (byte by byte), `azure` and `s3` (signed, by `signer`). `answer` is what they get.
//! - Programs: `gateway` is the binary, and `guarded` a command that `ifmatch lock` or `ifmatch elect` runs; `process` starts any.
//! - Servers for the binary to talk to: `origin`, `server`. `tls` makes certificates.
//!
//! All functions panic on failure.
#![allow(
    clippy::missing_panics_doc,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stderr, reason = "the output of a failed test")]

use std::time::Duration;

mod answer;
pub mod azure;
mod client;
mod gateway;
mod guarded;
pub mod origin;
mod process;
pub mod raw;
pub mod s3;
mod server;
mod signer;
pub mod tls;

pub use answer::Answer;
pub use client::{Body, Client, full};
pub use gateway::{Gateway, run, run_command};
pub use guarded::Guarded;
pub use process::{Finished, Process, kill};
pub use server::Server;

/// Limit of [`eventually`], far beyond the expected time.
const LIMIT: Duration = Duration::from_mins(10);

/// Polls until there is a result.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(20);
    for _ in 0..LIMIT.as_millis() / pause.as_millis() {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(pause);
    }
    panic!("{what}: not within {LIMIT:?}");
}

/// Returns the path of an example, which cargo builds with the tests: beside the folder of this program.
pub fn example(name: &str) -> std::path::PathBuf {
    let here = std::env::current_exe().expect("a process knows its file");
    let folder = here
        .ancestors()
        .nth(2)
        .expect("target/debug")
        .join("examples");
    let program = folder
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.exists(),
        "{} is missing: run `cargo xtask ci --only servers`",
        program.display()
    );
    program
}
