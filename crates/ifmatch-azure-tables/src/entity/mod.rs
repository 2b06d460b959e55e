//! Entities: keys, properties, types and tags.

pub(crate) mod datetime;
pub(crate) mod edm;
pub(crate) mod etag;
pub(crate) mod key;
pub(crate) mod properties;
