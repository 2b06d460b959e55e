//! Every interleaving of the protocols, and their sabotages.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod appends;
mod bodies;
mod common;
mod container;
mod emptying;
mod group;
#[cfg(feature = "large")]
mod large;
mod leases;
mod lock;
mod protocol;
#[cfg(feature = "large")]
mod purges;
mod snapshots;
