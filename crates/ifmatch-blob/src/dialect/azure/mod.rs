//! The Azure dialect: what the unmodified Azure SDKs speak, over the same blobs as the plain one.
//!
//! A request is verified ([`shared_key`]), matched with the operation it asks for ([`operation`]), and translated into a call
//! of the store. What is not understood is refused before anything is done.

#![allow(dead_code, reason = "requests come to the rest with the next change")]

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use ifmatch_store::Clock;

use crate::body::BlobBody;
use crate::service::Shared;
use crate::store::{BlobStore, Upload};
use error::AzureError;
use query::Query;
use target::Target;

mod conditions;
mod error;
mod fields;
mod header_order;
mod operation;
mod query;
mod response;
pub(crate) mod shared_key;
mod string_to_sign;
mod target;
mod xml;

/// Whether a request is one of this dialect.
pub(crate) fn speaks(head: &Parts) -> bool {
    let has_signature = |query: &str| query.split('&').any(|parameter| parameter.starts_with("sig="));
    head.headers.contains_key(fields::VERSION) || head.uri.query().is_some_and(has_signature)
}

/// Answers a request. Its body is asked for only if it is to be stored.
pub(crate) async fn answer<S: BlobStore, C: Clock>(
    shared: Arc<Shared<S, C>>,
    head: Parts,
    upload: impl FnOnce() -> Upload,
) -> Response<BlobBody> {
    let answer = match route(&shared, &head, upload).await {
        Ok(response) => response,
        Err(error) => error.into_response(&head.method),
    };
    response::identified(answer, &head)
}

async fn route<S: BlobStore, C: Clock>(
    shared: &Arc<Shared<S, C>>,
    head: &Parts,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let account = shared_key::authorise_blob(&shared.accounts, head, shared.now())?;
    response::check(head)?;
    let target = Target::parse(head.uri.path(), account, &shared.accounts)?;
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    operation::find(target.kind(), &head.method, &query, &head.headers)?;
    drop(upload);
    Err(AzureError::new(http::StatusCode::NOT_IMPLEMENTED, "NotImplemented", "the operation is not there yet"))
}
