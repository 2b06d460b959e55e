//! The blob service over the embedded store, called as a tower service.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

mod faults;
mod lease_resource;
mod leases;
mod leftovers;
mod listing;
mod races;
mod ranges;
mod reads;
mod retries;
mod support;
mod uploads;
mod waits;
mod writes;
