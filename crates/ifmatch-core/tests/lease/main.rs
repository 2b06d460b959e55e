//! Tests of leases: every cell of Azure's tables, retries, time, writes in flight, ids, and random sequences.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod fencing;
mod ids;
mod in_flight;
mod retries;
mod sequences;
mod tables;
mod times;
mod world;

#[allow(dead_code, reason = "tags and header fields are for the tables of the HTTP half")]
#[path = "../http/table.rs"]
mod table;
