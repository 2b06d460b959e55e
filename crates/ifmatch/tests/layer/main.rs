//! The layer around an inner service that stops, fails and changes when told, on a clock that moves by hand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed expectation is a failed test")]

mod clocks;
mod compression;
mod leases;
mod leases_in_flight;
mod memory;
mod overlaps;
mod reads;
mod remembered;
mod stepped;
mod support;
mod writes;
mod writes_in_doubt;
