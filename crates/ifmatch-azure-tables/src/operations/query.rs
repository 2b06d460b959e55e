//! Query Entities and Query Tables, and reading a single one.

use http::{HeaderName, HeaderValue, Response};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::documents::{Crowded, DocumentMemory};
use ifmatch_blob::name::{BlobName, BlobPath};
use ifmatch_blob::store::BlobStore;
use serde_json::Value as Json;

use crate::access::TableAccess;
use crate::entity::datetime::DateTime;
use crate::entity::edm::EdmValue;
use crate::entity::key::{self, EntityKey};
use crate::entity::properties::{PARTITION_KEY, ROW_KEY, TIMESTAMP};
use crate::error::{ErrorCode, TableError};
use crate::request::filter::{Filter, PropertyValue, Row, Scalar};
use crate::request::options::{ContinuationToken, QueryOptions};
use crate::response::{self, ResponseFormat};
use crate::storage::entities::TableEntities;
use crate::storage::page::{PageBudget, PageQuery, RowSource, page};
use crate::storage::partition::StoredEntity;
use crate::storage::tables::{AccountContainers, Table, TableName};

/// Maximum number of reads of a page that batches change in between.
const READS: usize = 100;
/// Headers with continuation tokens.
const NEXT_PARTITION: HeaderName = HeaderName::from_static("x-ms-continuation-nextpartitionkey");
const NEXT_ROW: HeaderName = HeaderName::from_static("x-ms-continuation-nextrowkey");
const NEXT_TABLE: HeaderName = HeaderName::from_static("x-ms-continuation-nexttablename");

/// Returns the entities that match a filter, ordered by key.
pub(crate) async fn entities(
    entities: &TableEntities<'_>,
    options: &QueryOptions,
    format: &ResponseFormat,
    access: &TableAccess,
    memory: impl Fn() -> Result<DocumentMemory, Crowded>,
) -> Result<Response<BlobBody>, TableError> {
    let table = entities.table;
    if options.top == 0 {
        return Ok(format.listing(table.name.as_str(), Vec::new()));
    }
    let (partition, row) = options
        .filter
        .as_ref()
        .map(Filter::keys)
        .unwrap_or_default();
    let part = PageQuery {
        container: &entities.containers.entities,
        prefix: key::prefix(&table.identity, partition, row),
        after: after(options, table)?,
        limit: options.top,
        budget: PageBudget::default(),
    };
    let rows = MatchingEntities {
        entities,
        filter: options.filter.as_ref(),
        access,
    };
    // A batch that takes effect meanwhile might be seen in part.
    for _ in 0..READS {
        let before = match partition {
            Some(partition) => Some(entities.batches(partition).await?),
            None => None,
        };
        let response = read_page(
            entities,
            options,
            format,
            access,
            (part.clone(), memory()?),
            &rows,
        )
        .await?;
        if let (Some(partition), Some(before)) = (partition, before)
            && entities.batches(partition).await? != before
        {
            continue;
        }
        return Ok(response);
    }
    Err(TableError::new(ErrorCode::ServerBusy)
        .detail("batches changed the partition during each read"))
}

/// Reads one page.
async fn read_page(
    entities: &TableEntities<'_>,
    options: &QueryOptions,
    format: &ResponseFormat,
    access: &TableAccess,
    (mut part, mut memory): (PageQuery<'_>, DocumentMemory),
    rows: &MatchingEntities<'_>,
) -> Result<Response<BlobBody>, TableError> {
    let table = entities.table;
    // A continuation token must not name an entity that the client may not see, so those don't count towards the budget.
    let (page, next) = loop {
        let page = page(entities.store, part.clone(), rows, &mut memory).await?;
        let next = page
            .next
            .as_ref()
            .and_then(|name| EntityKey::parse(name.as_str()));
        match (next, page.rows.last()) {
            (Some(next), Some((last, _))) if !access.covers(&table.name, &next) => {
                let last = last.clone();
                break (page, Some(last));
            }
            (Some(next), None) if !access.covers(&table.name, &next) => {
                part.after = page.next.map(|name| name.as_str().to_owned());
            }
            (next, _) => break (page, next),
        }
    };
    if entities
        .containers
        .find(entities.store, &table.name)
        .await?
        .as_ref()
        != Some(table)
    {
        // The table was deleted meanwhile, so the page may be incomplete.
        return Err(TableError::new(ErrorCode::TableNotFound));
    }
    let select = options.select.as_deref();
    let json = |(key, stored): &(EntityKey, StoredEntity)| {
        Json::Object(format.entity(&table.name, key, stored, select))
    };
    let mut response = format.listing(table.name.as_str(), page.rows.iter().map(json).collect());
    if let Some(key) = next {
        let next = [(NEXT_PARTITION, key.partition), (NEXT_ROW, key.row)];
        response.headers_mut().extend(
            next.into_iter()
                .filter_map(|(name, key)| Some((name, token(&key)?))),
        );
    }
    Ok(response)
}

/// Returns the tables that match a filter, ordered by name.
pub(crate) async fn tables(
    store: &dyn BlobStore,
    containers: &AccountContainers,
    options: &QueryOptions,
    format: &ResponseFormat,
    mut memory: DocumentMemory,
) -> Result<Response<BlobBody>, TableError> {
    if options.top == 0 {
        return Ok(format.listing("Tables", Vec::new()));
    }
    let after = options.next_table.as_ref().map(|token| token.0.clone());
    let part = PageQuery {
        container: &containers.tables,
        prefix: String::new(),
        after,
        limit: options.top,
        budget: PageBudget::default(),
    };
    let tables = MatchingTables {
        store,
        containers,
        filter: options.filter.as_ref(),
    };
    let page = page(store, part, &tables, &mut memory).await?;
    let rows = page
        .rows
        .iter()
        .map(|name| Json::Object(format.table(name)))
        .collect();
    let mut response = format.listing("Tables", rows);
    let next = page.next.as_ref().and_then(|name| token(name.as_str()));
    response
        .headers_mut()
        .extend(next.map(|next| (NEXT_TABLE, next)));
    Ok(response)
}

/// Returns the name of the blob to continue after.
fn after(options: &QueryOptions, table: &Table) -> Result<Option<String>, TableError> {
    let Some(partition) = &options.next_partition else {
        return Ok(None);
    };
    let row = options.next_row.as_ref().map_or("", |row| &row.0);
    let name = EntityKey::new(&partition.0, row)?.name_in(&table.identity)?;
    Ok(Some(name.as_str().to_owned()))
}

/// Returns the header value of a continuation token.
fn token(key: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&ContinuationToken(key.to_owned()).encode()).ok()
}

/// The entities that match a filter.
struct MatchingEntities<'a> {
    entities: &'a TableEntities<'a>,
    filter: Option<&'a Filter>,
    access: &'a TableAccess,
}

impl RowSource for MatchingEntities<'_> {
    type Row = (EntityKey, StoredEntity);

    async fn row(&self, name: &BlobName) -> Result<Option<Self::Row>, TableError> {
        let Some(key) = EntityKey::parse(name.as_str()) else {
            return Ok(None);
        };
        let passes = |stored: Option<&StoredEntity>| {
            self.filter.map_or(Some(true), |filter| {
                filter.holds(&SeenEntity { key: &key, stored })
            })
        };
        if !self.access.covers(&self.entities.table.name, &key) || passes(None) == Some(false) {
            return Ok(None);
        }
        let stored = self.entities.get(&key).await?;
        Ok(stored
            .filter(|stored| passes(Some(stored)) == Some(true))
            .map(|stored| (key, stored)))
    }

    fn bytes((key, stored): &Self::Row) -> usize {
        stored.entity.bytes(key)
    }

    /// The records of batches are in the same container.
    fn is_position(name: &BlobName) -> bool {
        EntityKey::parse(name.as_str()).is_some()
    }
}

/// An entity, before or after its properties were read.
struct SeenEntity<'a> {
    key: &'a EntityKey,
    stored: Option<&'a StoredEntity>,
}

impl Row for SeenEntity<'_> {
    fn property(&self, name: &str) -> PropertyValue<'_> {
        match (name, self.stored) {
            (PARTITION_KEY, _) => PropertyValue::Is(Scalar::Text(&self.key.partition)),
            (ROW_KEY, _) => PropertyValue::Is(Scalar::Text(&self.key.row)),
            (_, None) => PropertyValue::Unknown,
            (TIMESTAMP, Some(stored)) => {
                let moment = DateTime::of(stored.generation.timestamp());
                moment.map_or(PropertyValue::Missing, |moment| {
                    PropertyValue::Is(Scalar::Moment(moment))
                })
            }
            (name, Some(stored)) => {
                let value: Option<&EdmValue> = stored.entity.get(name);
                value.map_or(PropertyValue::Missing, |value| {
                    PropertyValue::Is(value.into())
                })
            }
        }
    }
}

/// The tables that match a filter.
struct MatchingTables<'a> {
    store: &'a dyn BlobStore,
    containers: &'a AccountContainers,
    filter: Option<&'a Filter>,
}

impl RowSource for MatchingTables<'_> {
    type Row = TableName;

    async fn row(&self, name: &BlobName) -> Result<Option<TableName>, TableError> {
        let blob = BlobPath {
            container: self.containers.tables.clone(),
            name: name.clone(),
        };
        let table = self
            .containers
            .read(self.store, &blob)
            .await?
            .map(|table| table.name);
        Ok(table.filter(|name| {
            self.filter
                .is_none_or(|filter| filter.holds(name) == Some(true))
        }))
    }

    fn bytes(name: &TableName) -> usize {
        name.as_str().len()
    }
}

impl Row for TableName {
    fn property(&self, name: &str) -> PropertyValue<'_> {
        if name == "TableName" {
            PropertyValue::Is(Scalar::Text(self.as_str()))
        } else {
            PropertyValue::Missing
        }
    }
}

/// Returns an entity.
pub(crate) async fn entity(
    entities: &TableEntities<'_>,
    key: &EntityKey,
    options: &QueryOptions,
    format: &ResponseFormat,
) -> Result<Response<BlobBody>, TableError> {
    let stored = entities
        .get(key)
        .await?
        .ok_or_else(|| TableError::new(ErrorCode::ResourceNotFound))?;
    let name = &entities.table.name;
    let json = format.entity(name, key, &stored, options.select.as_deref());
    let mut response = format.element(name.as_str(), json);
    response::tag(response.headers_mut(), stored.generation);
    Ok(response)
}

/// Returns a table.
pub(crate) async fn table(
    store: &dyn BlobStore,
    containers: &AccountContainers,
    name: &TableName,
    format: &ResponseFormat,
) -> Result<Response<BlobBody>, TableError> {
    let table = containers
        .find(store, name)
        .await?
        .ok_or_else(|| TableError::new(ErrorCode::ResourceNotFound))?;
    Ok(format.element("Tables", format.table(&table.name)))
}
