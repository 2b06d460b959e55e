//! The dialects: how requests become what a store does, and how its answers become responses.

pub(crate) mod azure;
pub(crate) mod plain;
