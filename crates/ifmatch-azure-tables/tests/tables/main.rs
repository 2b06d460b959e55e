//! Tests of the table service that need a manual clock, several accounts or interleavings. The black box and the SDK
//! suites test everything that can be observed over the wire.
#![allow(clippy::expect_used, reason = "a test fails on anything unexpected")]

#[path = "../../../../tests/support/answer.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the black box")]
mod answer;
mod batches;
mod garbage;
mod interleavings;
mod requests;
#[path = "../../../../tests/support/signer.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the black box")]
mod signer;
mod support;
