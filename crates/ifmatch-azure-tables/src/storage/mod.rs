//! Tables and entities in the blob store.

pub(crate) mod blob;
pub(crate) mod entities;
pub(crate) mod garbage;
pub(crate) mod page;
pub(crate) mod partition;
pub(crate) mod tables;
