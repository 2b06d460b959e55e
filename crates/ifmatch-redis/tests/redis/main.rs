//! The register on real servers of Redis.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod faults;
mod limits;
mod register;
mod settings;
