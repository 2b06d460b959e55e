//! The proxy between real sockets: what the upstream sees, what comes back, and what happens when one end misbehaves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

mod answers;
mod support;
mod trouble;
mod upgrades;
