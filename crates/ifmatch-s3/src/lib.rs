//! The S3 dialect, spoken by unmodified S3 clients, over the same blobs as all other dialects.
//!
//! `s3s` speaks the protocol: XML, chunked bodies, and signatures, of which `authorization` checks what `s3s` does not.
//! Everything that decides is the store's: a condition of a request is a condition of its write.

mod authorization;
mod backend;
mod body;
mod buckets;
mod checksum;
mod conditions;
mod convert;
mod copy;
mod error;
mod host;
mod list;
mod multipart;
mod objects;
mod service;

pub use authorization::is_presigned;
pub use service::S3Service;
