//! The store: response heads with their bodies, by URI.

mod archive;
pub(crate) mod entry;
mod invalidation_log;
pub(crate) mod memory;
mod record;
pub(crate) mod spill;
pub(crate) mod stored_response;
pub(crate) mod table;
