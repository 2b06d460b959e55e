//! Every interleaving of the protocols, and their sabotages.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod appends;
mod common;
mod container;
mod group;
mod leases;
mod lock;
mod protocol;
mod purges;
