//! The driver, the register in memory, lanes, and the conformance suite and its checker.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod combiner;
mod driver;
mod engine_time;
mod history;
mod lanes;
mod memory;
mod mutations;
#[cfg(unix)]
mod processes;
