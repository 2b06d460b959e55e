//! Tests of the Azure dialect that need a manual clock, several accounts, faults or interleavings. The black box and the
//! SDK suites test everything that can be observed over the wire.
#![expect(clippy::expect_used, reason = "a test fails on anything unexpected")]

mod accounts;
#[path = "../../../../tests/support/answer.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the black box")]
mod answer;
mod appends;
mod blocks;
mod bodies;
mod copies;
mod interleavings;
mod leases;
mod policies;
mod shared_access;
#[path = "../../../../tests/support/signer.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the black box")]
mod signer;
mod snapshots;
mod support;
