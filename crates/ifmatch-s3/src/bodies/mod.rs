//! The bodies of requests, on both sides of `s3s`.
//!
//! - Before `s3s` reads it: `incoming` is the body. It reads a `document` in full, and bounds the `chunks` of an upload.
//! - After that: `upload_body` verifies the checksums of an upload as the store reads it.
//! - Both need `checksum`, the checksums of S3, and `memory`, which bounds what is held in full.

pub(crate) mod checksum;
pub(crate) mod chunks;
pub(crate) mod document;
pub(crate) mod incoming;
pub(crate) mod memory;
pub(crate) mod upload_body;
