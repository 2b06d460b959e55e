//! Leases from an operator's view: listing and counting them.

pub mod listing;
