//! Test support: starts the real binary and real servers, and talks to them over real sockets.
//!
//! All functions panic on failure.
#![allow(clippy::missing_panics_doc, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "the output of a failed test")]

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
pub use guarded::{Guarded, kill};
pub use process::Finished;
pub use server::Server;

/// Polls until there is a result. The limit is far beyond the expected time.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("never: {what}");
}
