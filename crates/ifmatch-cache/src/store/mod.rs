//! The store: response heads with their bodies, by URI.

pub(crate) mod entry;
mod invalidation_log;
pub(crate) mod memory;
pub(crate) mod stored_response;
pub(crate) mod table;
