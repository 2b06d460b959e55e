//! Operations on blobs.

mod append_block;
mod copy_blob;
mod delete_blob;
mod get_blob;
mod lease_blob;
mod put_blob;
mod set_blob_headers;
mod set_blob_tier;
pub(crate) mod write;

pub(crate) use append_block::{append_block, require_block_blob, seal_blob};
pub(crate) use copy_blob::{copy_blob, open_source};
pub(crate) use delete_blob::delete_blob;
pub(crate) use get_blob::get_blob;
pub(crate) use lease_blob::lease_blob;
pub(crate) use put_blob::put_blob;
pub(crate) use set_blob_headers::set_blob_headers;
pub(crate) use set_blob_tier::set_blob_tier;
