//! The register on a real server, which each test starts on a free port.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod clocks;
mod conformance;
mod faults;
mod limits;
mod lost_answers;
mod mutations;
mod opening;
mod promotion;
mod proxy;
mod server;
