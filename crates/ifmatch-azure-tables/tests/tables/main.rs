//! The table service over the embedded store, called as a tower service.
#![allow(clippy::expect_used, reason = "a test ends at what it did not expect")]

mod access;
mod bad_input;
mod changes;
mod collecting;
mod conditions;
mod content;
mod interleavings;
mod interposed;
mod queries;
mod races;
mod support;
mod tables;
