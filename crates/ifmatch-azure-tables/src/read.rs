//! Reading a single entity or table.

use http::Response;

use super::entities::Entities;
use super::error::{Code, TableError};
use super::key::EntityKey;
use super::options::Options;
use super::reply::{self, Style};
use super::table::{Home, TableName};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::BlobStore;

pub(super) async fn entity(
    entities: &Entities<'_>,
    key: &EntityKey,
    options: &Options,
    style: &Style,
) -> Result<Response<BlobBody>, TableError> {
    let stored = entities.get(key).await?.ok_or_else(|| TableError::new(Code::ResourceNotFound))?;
    let name = &entities.table.name;
    let json = style.entity(name, key, &stored, options.select.as_deref());
    let mut response = style.element(name.as_str(), json);
    reply::tag(response.headers_mut(), stored.generation);
    Ok(response)
}

pub(super) async fn table(
    store: &dyn BlobStore,
    home: &Home,
    name: &TableName,
    style: &Style,
) -> Result<Response<BlobBody>, TableError> {
    let table = home.find(store, name).await?.ok_or_else(|| TableError::new(Code::ResourceNotFound))?;
    Ok(style.element("Tables", style.table(&table.name)))
}
