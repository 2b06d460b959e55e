//! The memory for documents and for bodies in chunks, which all dialects share.

use http::Extensions;
use ifmatch_blob::dialect::Client;
use ifmatch_blob::documents::{DocumentMemory, Documents};
use s3s::S3Result;

use crate::backend::Backend;
use crate::error;

/// The memory for documents, and the client that takes some of it.
#[derive(Clone, Debug)]
pub(crate) struct ClientMemory {
    pub(crate) documents: Documents,
    pub(crate) client: Option<Client>,
}

/// Begins to account for the memory of a response.
pub(crate) fn of_response(backend: &Backend, extensions: &Extensions) -> S3Result<DocumentMemory> {
    backend
        .context
        .documents
        .begin_answer(extensions.get().copied())
        .map_err(error::crowded)
}
