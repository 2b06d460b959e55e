//! Tests of the layer around an inner service that stops, fails and changes on request, with a manual clock.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod clocks;
mod compression;
mod leases;
mod leases_in_flight;
mod long_bodies;
mod memory;
mod memory_fast_path;
mod new_versions;
mod overlaps;
mod reads;
mod register_calls;
mod slow_bodies;
mod stepped;
mod support;
mod writes;
mod writes_in_doubt;
