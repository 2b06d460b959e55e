//! The operations of the table service.

pub(crate) mod batch;
pub(crate) mod query;
pub(crate) mod write;
