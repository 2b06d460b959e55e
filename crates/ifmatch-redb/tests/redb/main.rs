//! The register on files: conformance, crashes, losses of power, damage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod crash;
mod damage;
mod power;
mod register;
