//! Tests of the HTTP rules: tables from the RFCs, known bugs of other implementations, and properties.

mod known_bugs;
mod naive;
mod precondition_tables;
mod problems;
mod properties;
mod serde_form;
mod value_tables;
