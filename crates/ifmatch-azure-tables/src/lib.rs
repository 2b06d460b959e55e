//! The table service: entities over any [`BlobStore`](ifmatch_blob::BlobStore), as the Azure SDKs use them.
//!
//! A table is a blob that contains the table's identity, drawn at random on creation. An entity is a blob with a name
//! that begins with that identity: once the table's blob is gone, its entities are unreachable, and a table created
//! later under the same name has none of them. Conditions are the store's: the weak tag in a request is compared as
//! text with the current version's, and the write then requires that version's strong tag.

pub use service::TableService;

mod access;
mod entity;
mod error;
mod operations;
mod request;
mod response;
mod route;
mod service;
mod storage;
