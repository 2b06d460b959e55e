//! The cache in front of a scripted origin: cases from the RFCs as data, races, limits, and hostile input.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod case;
mod cases;
mod clocks;
mod disk;
mod failures;
mod hostile;
mod limits;
mod outcomes;
mod personal;
mod private;
mod purges;
mod queries;
mod races;
mod restarts;
mod rules;
mod settings;
mod slices;
mod slow_readers;
mod soft_purges;
mod stress;
mod support;
mod tables;
mod trust;
mod waiters;
