//! Entity group transactions: `$batch`.

use std::collections::BTreeSet;
use std::fmt::Write;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use ifmatch_blob::body::BlobBody;
use ifmatch_core::record::Revision;

use super::write;
use crate::access::TableAccess;
use crate::entity::etag::IfMatch;
use crate::entity::properties::{Entity, key_in};
use crate::error::{ErrorCode, TableError};
use crate::request::changeset::ChangesetPart;
use crate::request::resource::TableResource;
use crate::request::verb::{Verb, permissions};
use crate::response::ResponseFormat;
use crate::storage::batch::FailedOperation;
use crate::storage::change::{EntityChange, EntityOperation};
use crate::storage::entities::TableEntities;
use crate::storage::partition::StoredEntity;
use crate::storage::tables::TableName;

/// Maximum number of operations.
const MAX_OPERATIONS: usize = 100;

/// The operations of a batch.
pub(crate) struct BatchOperations {
    pub(crate) table: TableName,
    changes: Vec<EntityChange>,
    /// The headers of each operation.
    headers: Vec<HeaderMap>,
}

impl BatchOperations {
    /// Parses the operations, and checks that the request may carry them out.
    ///
    /// # Errors
    /// An operation isn't valid, or not on the same partition and table as the others.
    pub(crate) fn parse(
        parts: Vec<ChangesetPart>,
        account: &str,
        access: &TableAccess,
    ) -> Result<Self, FailedOperation> {
        if parts.len() > MAX_OPERATIONS {
            let detail =
                "The batch request operation exceeds the maximum 100 changes per change set.";
            return Err((MAX_OPERATIONS - 1, TableError::invalid(detail)));
        }
        let mut batch: Option<Self> = None;
        let mut rows = BTreeSet::new();
        for (index, part) in parts.into_iter().enumerate() {
            let failed = |error| (index, error);
            let (table, change) = change(&part, account, access).map_err(failed)?;
            let headers = part.head.headers;
            let batch = batch.get_or_insert_with(|| Self {
                table: table.clone(),
                changes: Vec::new(),
                headers: Vec::new(),
            });
            let is_same = batch.table == table
                && batch
                    .changes
                    .first()
                    .is_none_or(|first| first.key.partition == change.key.partition);
            if !is_same {
                return Err(failed(TableError::new(
                    ErrorCode::CommandsInBatchActOnDifferentPartitions,
                )));
            }
            if !rows.insert(change.key.row.clone()) {
                return Err(failed(TableError::new(ErrorCode::InvalidDuplicateRow)));
            }
            batch.changes.push(change);
            batch.headers.push(headers);
        }
        batch.ok_or_else(|| {
            (
                0,
                TableError::invalid("a batch must have at least one operation"),
            )
        })
    }

    /// Carries out all operations or none, and returns the responses of all.
    ///
    /// # Errors
    /// An operation can't be carried out.
    pub(crate) async fn run(
        &self,
        entities: &TableEntities<'_>,
        format: &ResponseFormat,
    ) -> Result<Vec<Response<BlobBody>>, FailedOperation> {
        let generations = entities.change_all(&self.changes).await?;
        let all = self.changes.iter().zip(&self.headers).zip(generations);
        Ok(all
            .map(|((change, headers), generation)| {
                respond(entities, format, change, headers, generation)
            })
            .collect())
    }
}

/// Parses an operation, and checks that the request may carry it out.
fn change(
    part: &ChangesetPart,
    account: &str,
    access: &TableAccess,
) -> Result<(TableName, EntityChange), TableError> {
    let path = part.head.uri.path();
    if path.split('/').nth(1) != Some(account) {
        return Err(TableError::new(ErrorCode::InvalidUri)
            .detail("all operations must be on the account of the batch"));
    }
    let verb = Verb::of(&part.head)?;
    let headers = &part.head.headers;
    let (table, key, operation, guard) = match (TableResource::parse(path)?, verb) {
        (TableResource::Entities(table), Verb::Post) => {
            write::no_conditions(headers)?;
            let body = write::object(part.body.as_bytes())?;
            (
                table,
                key_in(&body)?,
                EntityOperation::Insert(Entity::parse(&body)?),
                IfMatch::None,
            )
        }
        (TableResource::Entity(table, key), Verb::Put | Verb::Merge) => {
            let guard = write::guard(headers)?;
            let entity = Entity::parse(&write::object(part.body.as_bytes())?)?;
            let operation = match verb {
                Verb::Put => EntityOperation::Replace(guard.clone(), entity),
                _ => EntityOperation::Merge(guard.clone(), entity),
            };
            (table, key, operation, guard)
        }
        (TableResource::Entity(table, key), Verb::Delete) => {
            let guard = write::required_guard(headers)?;
            (table, key, EntityOperation::Delete(guard.clone()), guard)
        }
        _ => {
            return Err(TableError::new(ErrorCode::NotImplemented)
                .detail("a batch consists of changes to entities"));
        }
    };
    for needed in permissions(verb, &guard) {
        access.to_entities(needed)?;
    }
    access.to_entity(&table, &key)?;
    Ok((table, EntityChange { key, operation }))
}

/// Builds the response to an operation.
fn respond(
    entities: &TableEntities<'_>,
    format: &ResponseFormat,
    change: &EntityChange,
    headers: &HeaderMap,
    generation: Option<Revision>,
) -> Response<BlobBody> {
    match (&change.operation, generation) {
        (EntityOperation::Insert(entity), Some(generation)) => {
            let stored = StoredEntity {
                entity: entity.clone(),
                generation,
            };
            write::inserted(&entities.table.name, headers, &change.key, &stored, format)
        }
        _ => write::changed(generation),
    }
}

/// Builds the response with the responses of all operations, or of the one that failed.
pub(crate) async fn multipart(
    outcome: Result<Vec<Response<BlobBody>>, FailedOperation>,
    id: u64,
) -> Result<Response<BlobBody>, TableError> {
    let parts = outcome.unwrap_or_else(|(index, error)| vec![error.at(index).to_response()]);
    let (batch, set) = (
        format!("batchresponse_{id:016x}"),
        format!("changesetresponse_{id:016x}"),
    );
    let mut text = format!("--{batch}\r\nContent-Type: multipart/mixed; boundary={set}\r\n\r\n");
    for part in parts {
        let (head, body) = part.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| TableError::new(ErrorCode::InternalError).detail(error.to_string()))?;
        let reason = head.status.canonical_reason().unwrap_or_default();
        let _ = write!(
            text,
            "--{set}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        );
        let _ = write!(text, "HTTP/1.1 {} {reason}\r\n", head.status.as_u16());
        text += "X-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n";
        for (name, value) in &head.headers {
            // The SDK for JavaScript compares the case.
            let name = if name == ETAG { "ETag" } else { name.as_str() };
            let _ = write!(text, "{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
        let _ = write!(
            text,
            "\r\n{}\r\n",
            String::from_utf8_lossy(&body.to_bytes())
        );
    }
    let _ = write!(text, "--{set}--\r\n--{batch}--\r\n");
    let mut response = Response::new(BlobBody::from(text));
    *response.status_mut() = StatusCode::ACCEPTED;
    let media = HeaderValue::from_str(&format!("multipart/mixed; boundary={batch}"));
    let headers = response.headers_mut();
    headers.extend(media.ok().map(|media| (CONTENT_TYPE, media)));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
