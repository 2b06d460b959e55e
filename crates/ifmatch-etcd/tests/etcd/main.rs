//! The register on real servers of etcd.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod faults;
mod register;
mod settings;
