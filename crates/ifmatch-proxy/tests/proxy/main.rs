//! The proxy over real sockets, with correct and faulty upstreams.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod answers;
mod http2;
mod support;
mod trouble;
