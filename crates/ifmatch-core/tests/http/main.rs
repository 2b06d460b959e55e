//! Tests of the HTTP rules: tables from the RFCs, known bugs of other implementations, and properties.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod known_bugs;
mod naive;
mod precondition_tables;
mod problems;
mod properties;
mod serde_form;
mod table;
mod value_tables;
