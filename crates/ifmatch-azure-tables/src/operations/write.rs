//! Creating and deleting tables; inserting, replacing, merging and deleting entities.

use http::header::IF_MATCH;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::BlobStore;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;
use serde_json::{Map, Value as Json};

use crate::entity::etag::IfMatch;
use crate::entity::key::EntityKey;
use crate::entity::properties::{Entity, key_in};
use crate::error::{ErrorCode, TableError};
use crate::request::content_type;
use crate::response::{self, ResponseFormat};
use crate::storage::change::{EntityChange, EntityOperation};
use crate::storage::entities::TableEntities;
use crate::storage::numbered;
use crate::storage::partition::StoredEntity;
use crate::storage::tables::{AccountContainers, TableName};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Maximum size of a request's body: an entity of 1 MiB with every character escaped.
pub(crate) const MAX_BODY: u64 = 4 * 1024 * 1024;

/// Creates a table.
pub(crate) async fn create_table(
    store: &dyn BlobStore,
    containers: &AccountContainers,
    headers: &HeaderMap,
    name: &TableName,
    format: &ResponseFormat,
) -> Result<Response<BlobBody>, TableError> {
    let table = containers.create(store, name).await?;
    Ok(created(headers, || {
        format.element("Tables", format.table(&table.name))
    }))
}

/// Returns the name of a table to create.
pub(crate) fn table_name(body: &Map<String, Json>) -> Result<TableName, TableError> {
    let name = body
        .get("TableName")
        .ok_or_else(|| TableError::new(ErrorCode::PropertiesNeedValue))?;
    TableName::new(
        name.as_str()
            .ok_or_else(|| TableError::invalid("the name of a table must be a string"))?,
    )
}

/// Returns an entity to insert, and its key.
pub(crate) fn new_entity(body: &Map<String, Json>) -> Result<(EntityKey, Entity), TableError> {
    Ok((key_in(body)?, Entity::parse(body)?))
}

/// Deletes a table.
pub(crate) async fn delete_table(
    store: &dyn BlobStore,
    containers: &AccountContainers,
    name: &TableName,
) -> Result<Response<BlobBody>, TableError> {
    containers.delete(store, name).await?;
    Ok(response::empty())
}

/// Inserts an entity.
pub(crate) async fn insert(
    entities: &TableEntities<'_>,
    headers: &HeaderMap,
    key: &EntityKey,
    entity: Entity,
    format: &ResponseFormat,
) -> Result<Response<BlobBody>, TableError> {
    let operation = EntityOperation::Insert(entity.clone());
    let generation = numbered(
        entities
            .change(EntityChange {
                key: key.clone(),
                operation,
            })
            .await?,
    )?;
    let stored = StoredEntity { entity, generation };
    Ok(inserted(
        &entities.table.name,
        headers,
        key,
        &stored,
        format,
    ))
}

/// Builds the response to the insertion of an entity.
pub(crate) fn inserted(
    table: &TableName,
    headers: &HeaderMap,
    key: &EntityKey,
    stored: &StoredEntity,
    format: &ResponseFormat,
) -> Response<BlobBody> {
    let mut response = created(headers, || {
        format.element(table.as_str(), format.entity(table, key, stored, None))
    });
    format.locate(response.headers_mut(), table, key);
    response::tag(response.headers_mut(), stored.generation);
    response
}

/// Replaces, merges or deletes an entity.
pub(crate) async fn change(
    entities: &TableEntities<'_>,
    change: EntityChange,
) -> Result<Response<BlobBody>, TableError> {
    Ok(changed(entities.change(change).await?))
}

/// Builds the response to a change of an entity, which has this generation unless it was deleted.
pub(crate) fn changed(generation: Option<Revision>) -> Response<BlobBody> {
    let mut response = response::empty();
    if let Some(generation) = generation {
        response::tag(response.headers_mut(), generation);
    }
    response
}

/// Parses `If-Match`.
///
/// # Errors
/// `If-Match` is malformed or repeated, or there are conditions that the operation doesn't support. Ignoring those
/// would turn a guarded write into an unconditional one.
pub(crate) fn guard(headers: &HeaderMap) -> Result<IfMatch, TableError> {
    unconditional(headers, |name| *name != IF_MATCH)?;
    let mut lines = headers.get_all(IF_MATCH).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(IfMatch::None),
        (Some(line), None) => IfMatch::parse(line.as_bytes()),
        (Some(_), Some(_)) => Err(TableError::invalid("If-Match must not be repeated")),
    }
}

/// Parses `If-Match` of a deletion, which must have one.
///
/// # Errors
/// The condition is missing or [invalid](guard).
pub(crate) fn required_guard(headers: &HeaderMap) -> Result<IfMatch, TableError> {
    match guard(headers)? {
        IfMatch::None => Err(TableError::new(ErrorCode::MissingRequiredHeader).detail("If-Match")),
        guard => Ok(guard),
    }
}

/// Rejects conditions on operations that support none.
///
/// # Errors
/// There is a condition.
pub(crate) fn no_conditions(headers: &HeaderMap) -> Result<(), TableError> {
    unconditional(headers, |_| true)
}

/// Rejects the conditions for which `is_rejected` returns `true`.
fn unconditional(
    headers: &HeaderMap,
    is_rejected: impl Fn(&HeaderName) -> bool,
) -> Result<(), TableError> {
    match Preconditions::HEADERS
        .iter()
        .find(|name| is_rejected(name) && headers.contains_key(*name))
    {
        Some(name) => Err(TableError::new(ErrorCode::ConditionHeadersNotSupported)
            .detail(format!("remove {name}"))),
        None => Ok(()),
    }
}

/// Rejects a body in Atom's format.
///
/// # Errors
/// The body is Atom.
pub(crate) fn no_xml(headers: &HeaderMap) -> Result<(), TableError> {
    if content_type(headers).contains("xml") {
        Err(TableError::new(ErrorCode::AtomFormatNotSupported))
    } else {
        Ok(())
    }
}

/// Parses a body, which must be a JSON object. The result takes many times its memory: don't keep it while waiting.
///
/// # Errors
/// The body isn't a JSON object.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Json>, TableError> {
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err(TableError::invalid("the body is not a JSON object")),
        Err(error) => Err(TableError::invalid(format!(
            "the body is not JSON: {error}"
        ))),
    }
}

/// Builds the response to a creation, without content if the client prefers so.
fn created(
    headers: &HeaderMap,
    content: impl FnOnce() -> Response<BlobBody>,
) -> Response<BlobBody> {
    let prefers = |preference: &str| {
        let lines = headers
            .get_all(PREFER)
            .iter()
            .filter_map(|line| line.to_str().ok());
        lines
            .flat_map(|line| line.split(','))
            .any(|one| one.trim().eq_ignore_ascii_case(preference))
    };
    if prefers("return-no-content") {
        let mut response = response::empty();
        response.headers_mut().insert(
            PREFERENCE_APPLIED,
            HeaderValue::from_static("return-no-content"),
        );
        return response;
    }
    let mut response = content();
    *response.status_mut() = StatusCode::CREATED;
    if prefers("return-content") {
        response.headers_mut().insert(
            PREFERENCE_APPLIED,
            HeaderValue::from_static("return-content"),
        );
    }
    response
}
