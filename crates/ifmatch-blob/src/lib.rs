//! The ifmatch blob service: blobs over HTTP, with atomic conditional writes.
//!
//! [`BlobService`] is a [`tower_service::Service`] over any [`BlobStore`]. It serves plain HTTP, and the [`Dialect`]s
//! that you add. The stores are separate crates: `ifmatch-blob-indexed` keeps blobs in a folder,
//! `ifmatch-blob-objects` in an object store.
//!
//! [`Dialect`]: dialect::Dialect

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Start reading at `store`, the contract that stores keep and services rely on.
//
// - The contract's types: `name` for containers and blobs, `headers` and `tags` for what is stored with a blob, `body` and `error`.
//   `conformance` is the suite that every store passes, and `test_util` helps tests.
// - A request: `service` gives it to the first `dialect` that speaks its protocol, and otherwise to `plain`, which is plain HTTP.
// - Who may send requests: `access` has the tokens, `accounts` the keys of signatures, and `cors` the origins of web pages.
// - `waits`: reads that wait for a change. `leases`: what can be leased, and a lease as JSON.
// - `documents`: the memory for bodies that are held in full. `shares`: a limit in total and per client, such as for this memory.
// - For stores with a register: `records`. For dialects that keep blobs of their own in internal containers: `sweep` removes old ones.
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
