//! Leases from an operator's view: listing and counting them.

pub(crate) mod listing;
pub(crate) mod metrics;
