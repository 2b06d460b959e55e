//! Reading a single entity or table.

use http::Response;

use crate::entity::key::EntityKey;
use crate::error::{Code, TableError};
use crate::request::options::Options;
use crate::response::{self, ResponseFormat};
use crate::storage::entities::Entities;
use crate::storage::tables::{AccountContainers, TableName};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::BlobStore;

pub(crate) async fn entity(
    entities: &Entities<'_>,
    key: &EntityKey,
    options: &Options,
    format: &ResponseFormat,
) -> Result<Response<BlobBody>, TableError> {
    let stored = entities.get(key).await?.ok_or_else(|| TableError::new(Code::ResourceNotFound))?;
    let name = &entities.table.name;
    let json = format.entity(name, key, &stored, options.select.as_deref());
    let mut response = format.element(name.as_str(), json);
    response::tag(response.headers_mut(), stored.generation);
    Ok(response)
}

pub(crate) async fn table(
    store: &dyn BlobStore,
    containers: &AccountContainers,
    name: &TableName,
    format: &ResponseFormat,
) -> Result<Response<BlobBody>, TableError> {
    let table = containers.find(store, name).await?.ok_or_else(|| TableError::new(Code::ResourceNotFound))?;
    Ok(format.element("Tables", format.table(&table.name)))
}
