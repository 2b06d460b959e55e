//! The ifmatch blob service: blobs over HTTP whose every write can be made conditional, and is decided in one step.
//!
//! [`BlobService`] is a [`tower_service::Service`] over any [`BlobStore`]: [`EmbeddedStore`], which keeps its blobs in a
//! folder, or one that keeps them as objects of another store (feature `objects`, which also works on WebAssembly): a
//! file system or memory (`local`), S3, Azure Blob Storage or Google Cloud Storage (`cloud`). [`AnyStore`] is for programs
//! that choose theirs at run time.

pub mod accounts;
pub mod body;
mod content_md5;
mod dialect;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod headers;
pub mod name;
#[cfg(feature = "objects")]
pub mod objects;
#[cfg(any(feature = "embedded", feature = "objects"))]
mod records;
pub mod service;
pub mod store;
mod tables;

#[cfg(feature = "embedded")]
pub use embedded::EmbeddedStore;
pub use service::BlobService;
pub use store::BlobStore;
pub use store::erased::AnyStore;
