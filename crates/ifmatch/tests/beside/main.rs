//! The layer with services, layers and clients of other crates.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod beside;
mod comparisons;
mod counter;
