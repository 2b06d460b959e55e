//! The blob service over a folder, called as a tower service.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../../../tests/support/answer.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the black box")]
mod answer;
mod faults;
mod leases;
mod leftovers;
mod listing;
mod pages;
mod reads;
mod support;
mod uploads;
mod waits;
mod writes;
