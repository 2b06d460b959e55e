//! Test support: starts the real binary and real servers, and talks to them over real sockets.
//!
//! All functions panic on failure.
#![allow(clippy::missing_panics_doc, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "the output of a failed test")]

mod answer;
pub mod azure;
mod client;
mod gateway;
mod process;
pub mod raw;
pub mod s3;
mod server;
mod signer;

pub use answer::Answer;
pub use client::{Body, Client, full};
pub use gateway::{Gateway, build, run, run_command};
pub use process::Finished;
pub use server::Server;
