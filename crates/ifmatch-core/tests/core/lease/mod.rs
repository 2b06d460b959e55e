//! Tests of leases: every cell of Azure's tables, retries, time, writes in flight, ids, and random sequences.

mod fencing;
mod ids;
mod in_flight;
mod retries;
mod sequences;
mod tables;
mod times;
mod world;
