//! The table service: entities over any [`BlobStore`](ifmatch_blob::BlobStore), as the Azure SDKs speak to them.
//!
//! A table is a blob whose body has the table's identity, drawn at random when the table was created. An entity is a blob
//! whose name begins with that identity: once the table's blob is gone, nobody finds the entities, and a table
//! created later under the same name has none of them. Conditions are the store's: the weak tag that a client sends is
//! compared as text with that of the version in the store, and the write is then bound to the strong tag of that very version.

pub use service::TableService;

mod address;
mod collect;
mod datetime;
mod edm;
mod entities;
mod entity;
mod error;
mod etag;
mod filter;
mod format;
mod key;
mod options;
mod page;
mod query;
mod read;
mod reply;
mod route;
mod service;
mod table;
mod write;
