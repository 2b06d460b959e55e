//! The S3 dialect, spoken by unmodified S3 clients, over the same blobs as all other dialects.
//!
//! `s3s` speaks the protocol: XML, chunked bodies, and signatures. Around it, `signature` adds the signature checks
//! that `s3s` lacks, `authorization` says who may do what, `operation` refuses the operations that it mistakes for others, `incoming` bounds and verifies
//! what it reads, and `answer` corrects what it writes. The store decides everything: a request's condition becomes its
//! write's.

mod answer;
mod authorization;
mod backend;
mod body;
mod buckets;
mod checksum;
mod chunks;
mod conditions;
mod convert;
mod copy;
mod dispatch;
mod document;
mod error;
mod incoming;
mod memory;
mod multipart;
mod objects;
mod operation;
mod service;
mod settings;
mod signature;
mod tagging;
mod tags;

pub use answer::RequestId;
pub use service::S3Service;
pub use signature::is_presigned;
