//! The ifmatch blob service: blobs over HTTP, with atomic conditional writes.
//!
//! [`BlobService`] is a [`tower_service::Service`] over any [`BlobStore`]. It serves plain HTTP, and the [`Dialect`]s
//! that you add. The stores are separate crates: `ifmatch-blob-indexed` keeps blobs in a folder,
//! `ifmatch-blob-objects` in an object store.
//!
//! [`Dialect`]: dialect::Dialect

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
pub mod accounts;
pub mod body;
#[cfg(feature = "test-util")]
pub mod conformance;
pub mod cors;
pub mod dialect;
pub mod documents;
mod error;
pub mod headers;
pub mod leases;
pub mod name;
mod plain;
pub mod records;
pub mod service;
pub mod shares;
pub mod store;
pub mod sweep;
pub mod tags;
#[cfg(feature = "test-util")]
pub mod test_util;
pub mod waits;

pub use service::BlobService;
pub use store::BlobStore;
