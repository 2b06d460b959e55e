//! Requests: the resource, query parameters and filters.

pub(crate) mod changeset;
pub(crate) mod filter;
pub(crate) mod metadata_level;
pub(crate) mod options;
pub(crate) mod resource;
pub(crate) mod verb;
