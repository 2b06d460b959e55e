//! The rules of the repository's files, and the clients that all tests trust.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod clients;
mod tidy;
