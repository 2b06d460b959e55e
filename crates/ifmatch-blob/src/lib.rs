//! The ifmatch blob service: an embedded store, an object_store adapter and the HTTP dialects.

pub mod body;
pub mod headers;
pub mod name;
pub mod store;

pub use store::BlobStore;
pub use store::erased::AnyStore;
