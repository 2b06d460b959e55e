//! Tests of the HTTP half: tables after the RFC, bugs seen elsewhere, properties, and the fuzz targets' bodies.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at what it did not expect")]

mod fuzz;
mod known_bugs;
mod naive;
mod precondition_tables;
mod problems;
mod properties;
mod serde_form;
mod table;
mod value_tables;

#[path = "../fuzz_bodies/mod.rs"]
mod fuzz_bodies;
