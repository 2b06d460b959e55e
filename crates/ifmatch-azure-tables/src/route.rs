//! Routes requests to operations.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body::Body;
use ifmatch_azure::auth::{self, Authenticated};
use ifmatch_azure::service_info;
use ifmatch_blob::accounts::Accounts;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Client;
use ifmatch_blob::documents::{Crowded, DocumentMemory, Documents};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, BoxError, StoreError, StoreErrorKind};
use ifmatch_core::lease::azure::CLIENT_REQUEST_ID;
use ifmatch_runtime::{Clock, KeyedQueue, task};

use crate::access::TableAccess;
use crate::entity::etag::IfMatch;
use crate::entity::key::EntityKey;
use crate::entity::properties::Entity;
use crate::error::{ErrorCode, TableError};
use crate::operations::batch::{self, BatchOperations};
use crate::operations::query;
use crate::operations::write;
use crate::request::changeset;
use crate::request::metadata_level::MetadataLevel;
use crate::request::options::QueryOptions;
use crate::request::resource::TableResource;
use crate::request::verb::{Verb, permissions};
use crate::response::ResponseFormat;
use crate::storage;
use crate::storage::batch::FailedOperation;
use crate::storage::change::{EntityChange, EntityOperation};
use crate::storage::entities::TableEntities;
use crate::storage::tables::{AccountContainers, Table, TableName};

const X_MS_VERSION: HeaderName = HeaderName::from_static("x-ms-version");
/// The version of responses to requests without one.
const VERSION: HeaderValue = HeaderValue::from_static("2019-02-02");

/// State shared by all requests.
#[derive(Clone)]
pub(crate) struct TableContext {
    pub(crate) store: Arc<dyn BlobStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) accounts: Accounts,
    pub(crate) documents: Documents,
    /// Batches that wait.
    pub(crate) turns: Arc<KeyedQueue<BlobPath>>,
}

/// Responds to a request.
pub(crate) async fn answer<B>(shared: &TableContext, head: Parts, body: B) -> Response<BlobBody>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let response = route(shared, &head, body)
        .await
        .and_then(|response| count(shared, &head, response));
    let mut response = response.unwrap_or_else(|error| error.to_response());
    let headers = response.headers_mut();
    let version = head.headers.get(X_MS_VERSION).cloned();
    headers.insert(X_MS_VERSION, version.unwrap_or(VERSION));
    headers.extend(
        head.headers
            .get(CLIENT_REQUEST_ID)
            .map(|id| (CLIENT_REQUEST_ID, id.clone())),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Counts the response to a read, until it is sent. Those to writes are short, or take the memory of their requests.
fn count(
    shared: &TableContext,
    head: &Parts,
    response: Response<BlobBody>,
) -> Result<Response<BlobBody>, TableError> {
    if head.method != Method::GET {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = shared
        .documents
        .count(head.extensions.get().copied(), body)
        .map_err(StoreError::from)?;
    Ok(Response::from_parts(parts, body))
}

/// Authenticates a request, parses it, and carries it out.
async fn route<B>(
    shared: &TableContext,
    head: &Parts,
    body: B,
) -> Result<Response<BlobBody>, TableError>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let Authenticated { account, grant } =
        auth::authenticate_table(&shared.accounts, head, shared.clock.wall())?;
    let address = TableResource::parse(head.uri.path())?;
    let method = Verb::of(head)?;
    let options = QueryOptions::parse(head.uri.query().unwrap_or_default())?;
    if let Some((restype, comp)) = &options.subject {
        return about_service(&TableAccess(grant), &address, method, (restype, comp));
    }
    let metadata = MetadataLevel::requested(options.format.as_deref(), &head.headers)?;
    let format = ResponseFormat::new(head, account.name(), metadata);
    let containers = AccountContainers::of(account)
        .map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
    let request = AuthenticatedRequest {
        shared,
        headers: &head.headers,
        client: head.extensions.get().copied(),
        options,
        format,
        containers,
        access: TableAccess(grant),
        account: account.name().to_owned(),
    };
    match address {
        TableResource::Batch => request.batch(method, body).await,
        TableResource::Entity(table, key) => request.entity(&table, &key, method, body).await,
        TableResource::Entities(table) => request.entities(&table, method, body).await,
        TableResource::Table(table) => request.table(&table, method).await,
        TableResource::Tables => request.tables(method, body).await,
        TableResource::Service => Err(TableError::new(ErrorCode::NotImplemented)),
    }
}

/// Answers a request about the service itself.
fn about_service(
    access: &TableAccess,
    address: &TableResource,
    verb: Verb,
    subject: (&str, &str),
) -> Result<Response<BlobBody>, TableError> {
    let answer = match (address, verb, subject) {
        (TableResource::Service, Verb::Get, ("service", "properties")) => {
            service_info::table_properties
        }
        (TableResource::Service, Verb::Get, ("service", "stats")) => service_info::statistics,
        _ => return Err(TableError::new(ErrorCode::NotImplemented)),
    };
    access.to_service("r")?;
    Ok(answer())
}

/// An authenticated request.
struct AuthenticatedRequest<'a> {
    shared: &'a TableContext,
    headers: &'a HeaderMap,
    client: Option<Client>,
    options: QueryOptions,
    format: ResponseFormat,
    containers: AccountContainers,
    access: TableAccess,
    account: String,
}

impl AuthenticatedRequest<'_> {
    /// Answers a request to `$batch`.
    async fn batch<B>(&self, verb: Verb, body: B) -> Result<Response<BlobBody>, TableError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        if verb != Verb::Post {
            return Err(TableError::new(ErrorCode::UnsupportedHttpVerb));
        }
        write::no_conditions(self.headers)?;
        let bytes = self.read(body).await?;
        let body =
            str::from_utf8(&bytes).map_err(|_| TableError::invalid("the body is not UTF-8"))?;
        let parts = changeset::parse(self.headers, body)?;
        let id = storage::random()?;
        let answer = batch::multipart(self.run_batch(parts).await, id).await?;
        Ok(answer.map(|body| body.in_place_of(bytes.clone())))
    }

    /// Carries out a batch. It continues if the client disconnects, since only its end removes it from the record of its partition.
    async fn run_batch(
        &self,
        parts: Vec<changeset::ChangesetPart>,
    ) -> Result<Vec<Response<BlobBody>>, FailedOperation> {
        let batch = BatchOperations::parse(parts, &self.account, &self.access)?;
        let table = self.find(&batch.table).await.map_err(|error| (0, error))?;
        let TableContext {
            store,
            clock,
            turns,
            ..
        } = self.shared.clone();
        let (containers, format) = (self.containers.clone(), self.format.clone());
        let work = async move {
            let entities = TableEntities {
                store: &*store,
                clock: &clock,
                containers: &containers,
                turns: &turns,
                table: &table,
            };
            batch.run(&entities, &format).await
        };
        let done = task::detach(work).result().await;
        done.unwrap_or_else(|| {
            Err((
                0,
                TableError::new(ErrorCode::InternalError).detail("see the server's log"),
            ))
        })
    }

    /// Answers a request to all tables: a query or a creation.
    async fn tables<B>(&self, verb: Verb, body: B) -> Result<Response<BlobBody>, TableError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let store = &*self.shared.store;
        self.access
            .to_tables(if verb == Verb::Get { "l" } else { "cw" })?;
        match verb {
            Verb::Get => {
                query::tables(
                    store,
                    &self.containers,
                    &self.options,
                    &self.format,
                    self.memory()?,
                )
                .await
            }
            Verb::Post => {
                write::no_conditions(self.headers)?;
                let bytes = self.read_json(body).await?;
                let name = write::table_name(&write::object(&bytes)?)?;
                write::create_table(store, &self.containers, self.headers, &name, &self.format)
                    .await
            }
            _ => Err(TableError::new(ErrorCode::UnsupportedHttpVerb)),
        }
    }

    /// Answers a request to a table: a read or a deletion.
    async fn table(&self, name: &TableName, verb: Verb) -> Result<Response<BlobBody>, TableError> {
        let store = &*self.shared.store;
        self.access
            .to_tables(if verb == Verb::Get { "l" } else { "d" })?;
        match verb {
            Verb::Get => query::table(store, &self.containers, name, &self.format).await,
            Verb::Delete => {
                write::no_conditions(self.headers)?;
                write::delete_table(store, &self.containers, name).await
            }
            _ => Err(TableError::new(ErrorCode::UnsupportedHttpVerb)),
        }
    }

    /// Answers a request to the entities of a table: a query or an insertion.
    async fn entities<B>(
        &self,
        table: &TableName,
        verb: Verb,
        body: B,
    ) -> Result<Response<BlobBody>, TableError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        if !matches!(verb, Verb::Get | Verb::Post) {
            return Err(TableError::new(ErrorCode::UnsupportedHttpVerb));
        }
        self.access
            .to_entities(if verb == Verb::Get { "r" } else { "a" })?;
        if verb == Verb::Get {
            let table = self.find(table).await?;
            return self.query(&table).await;
        }
        write::no_conditions(self.headers)?;
        let bytes = self.read_json(body).await?;
        let (key, entity) = write::new_entity(&write::object(&bytes)?)?;
        let table = self.find(table).await?;
        self.access.to_entity(&table.name, &key)?;
        let answer = write::insert(
            &self.entities_of(&table),
            self.headers,
            &key,
            entity,
            &self.format,
        )
        .await?;
        Ok(answer.map(|body| body.in_place_of(bytes)))
    }

    /// Answers a request to an entity.
    async fn entity<B>(
        &self,
        table: &TableName,
        key: &EntityKey,
        verb: Verb,
        body: B,
    ) -> Result<Response<BlobBody>, TableError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        self.access.to_entity(table, key)?;
        let mut bytes = Bytes::new();
        let (guard, entity) = match verb {
            Verb::Get => (IfMatch::None, Entity::default()),
            Verb::Put | Verb::Merge => {
                let guard = write::guard(self.headers)?;
                bytes = self.read_json(body).await?;
                (guard, Entity::parse(&write::object(&bytes)?)?)
            }
            Verb::Delete => (write::required_guard(self.headers)?, Entity::default()),
            Verb::Post => return Err(TableError::new(ErrorCode::UnsupportedHttpVerb)),
        };
        for needed in permissions(verb, &guard) {
            self.access.to_entities(needed)?;
        }
        let table = self.find(table).await?;
        let entities = self.entities_of(&table);
        let operation = match verb {
            Verb::Get | Verb::Post => {
                return query::entity(&entities, key, &self.options, &self.format).await;
            }
            Verb::Put => EntityOperation::Replace(guard, entity),
            Verb::Merge => EntityOperation::Merge(guard, entity),
            Verb::Delete => EntityOperation::Delete(guard),
        };
        let answer = write::change(
            &entities,
            EntityChange {
                key: key.clone(),
                operation,
            },
        )
        .await;
        // The entity takes about as much memory as its bytes.
        drop(bytes);
        answer
    }

    /// Answers a query of entities.
    async fn query(&self, table: &Table) -> Result<Response<BlobBody>, TableError> {
        let entities = self.entities_of(table);
        query::entities(&entities, &self.options, &self.format, &self.access, || {
            self.memory()
        })
        .await
    }

    /// Begins to account for the memory of a response.
    fn memory(&self) -> Result<DocumentMemory, Crowded> {
        self.shared.documents.begin_answer(self.client)
    }

    /// Reads a body, which must be JSON.
    async fn read_json<B>(&self, body: B) -> Result<Bytes, TableError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        write::no_xml(self.headers)?;
        self.read(body).await
    }

    /// Reads a body.
    async fn read<B>(&self, body: B) -> Result<Bytes, TableError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        Ok(self
            .shared
            .documents
            .read(self.client, body, write::MAX_BODY)
            .await?)
    }

    /// Returns a table, which must exist.
    async fn find(&self, name: &TableName) -> Result<Table, TableError> {
        let found = self.containers.find(&*self.shared.store, name).await?;
        found.ok_or_else(|| TableError::new(ErrorCode::TableNotFound))
    }

    /// Returns access to the entities of a table.
    fn entities_of<'a>(&'a self, table: &'a Table) -> TableEntities<'a> {
        let TableContext {
            store,
            clock,
            turns,
            ..
        } = self.shared;
        TableEntities {
            store: &**store,
            clock,
            containers: &self.containers,
            turns,
            table,
        }
    }
}
