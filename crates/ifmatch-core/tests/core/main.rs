//! Tests of the decisions: the rules of HTTP, the record of a resource, groups of changes, and leases.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

// It keeps what has failed before in a file.
#[cfg(not(target_family = "wasm"))]
mod group;
mod http;
mod lease;
mod record;
mod table;
