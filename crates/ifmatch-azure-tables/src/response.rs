//! Responses: entities and tables as JSON.

use std::fmt::Write as _;

use http::header::{CONTENT_TYPE, ETAG, HOST, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_core::record::Revision;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value as Json};

use crate::entity::datetime::DateTime;
use crate::entity::etag;
use crate::entity::key::EntityKey;
use crate::entity::properties::{PARTITION_KEY, ROW_KEY, TIMESTAMP, TYPE};
use crate::request::metadata_level::MetadataLevel;
use crate::storage::partition::StoredEntity;
use crate::storage::tables::TableName;

/// Characters that aren't percent-encoded in the URL of an entity.
const ADDRESS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'\'');
/// Version of the `OData` protocol.
const DATA_SERVICE_VERSION: (HeaderName, HeaderValue) = (
    HeaderName::from_static("dataserviceversion"),
    HeaderValue::from_static("3.0;"),
);

/// The format of the responses to a request.
#[derive(Clone, Debug)]
pub(crate) struct ResponseFormat {
    pub(crate) metadata: MetadataLevel,
    /// The URL of the account, without a trailing slash.
    base: String,
    account: String,
}

impl ResponseFormat {
    /// Returns the format for a request, with URLs as the client addressed the account.
    pub(crate) fn new(head: &Parts, account: &str, metadata: MetadataLevel) -> Self {
        let scheme = head.uri.scheme_str().unwrap_or("http");
        let authority = head.uri.authority().map(http::uri::Authority::as_str);
        let host = authority.or_else(|| head.headers.get(HOST).and_then(|host| host.to_str().ok()));
        let base = host.map_or_else(
            || format!("/{account}"),
            |host| format!("{scheme}://{host}/{account}"),
        );
        Self {
            metadata,
            base,
            account: account.to_owned(),
        }
    }

    /// Returns the JSON of an entity, with all properties or the selected ones.
    pub(crate) fn entity(
        &self,
        table: &TableName,
        key: &EntityKey,
        stored: &StoredEntity,
        select: Option<&[String]>,
    ) -> Map<String, Json> {
        let selected =
            |name: &str| select.is_none_or(|select| select.iter().any(|selected| selected == name));
        let mut json = Map::new();
        if self.metadata >= MetadataLevel::Minimal {
            json.insert("odata.etag".to_owned(), etag::of(stored.generation).into());
        }
        if self.metadata == MetadataLevel::Full {
            let address = address(table, key);
            json.insert(
                "odata.type".to_owned(),
                format!("{}.{table}", self.account).into(),
            );
            json.insert(
                "odata.id".to_owned(),
                format!("{}/{address}", self.base).into(),
            );
            json.insert("odata.editLink".to_owned(), address.into());
        }
        for (name, text) in [(PARTITION_KEY, &key.partition), (ROW_KEY, &key.row)] {
            if selected(name) {
                json.insert(name.to_owned(), (**text).into());
            }
        }
        if let Some(moment) =
            DateTime::of(stored.generation.timestamp()).filter(|_| selected(TIMESTAMP))
        {
            if self.metadata == MetadataLevel::Full {
                json.insert(format!("{TIMESTAMP}{TYPE}"), "Edm.DateTime".into());
            }
            json.insert(TIMESTAMP.to_owned(), format!("{moment:#}").into());
        }
        for (name, value) in stored
            .entity
            .properties()
            .filter(|(name, _)| selected(name))
        {
            let (value, declared) = value.to_json();
            let declared = declared.filter(|_| self.metadata >= MetadataLevel::Minimal);
            json.extend(declared.map(|declared| (format!("{name}{TYPE}"), declared.into())));
            json.insert(name.to_owned(), value);
        }
        json
    }

    /// Returns the JSON of a table.
    pub(crate) fn table(&self, table: &TableName) -> Map<String, Json> {
        let mut json = Map::new();
        if self.metadata == MetadataLevel::Full {
            let address = format!("Tables('{table}')");
            json.insert(
                "odata.type".to_owned(),
                format!("{}.Tables", self.account).into(),
            );
            json.insert(
                "odata.id".to_owned(),
                format!("{}/{address}", self.base).into(),
            );
            json.insert("odata.editLink".to_owned(), address.into());
        }
        json.insert("TableName".to_owned(), table.as_str().into());
        json
    }

    /// A response with one element of a set: a table, or an entity of a table.
    pub(crate) fn element(&self, set: &str, json: Map<String, Json>) -> Response<BlobBody> {
        self.json(&format!("{set}/@Element"), json)
    }

    /// A response with a listing.
    pub(crate) fn listing(&self, set: &str, rows: Vec<Json>) -> Response<BlobBody> {
        self.json(set, Map::from_iter([("value".to_owned(), rows.into())]))
    }

    /// A response with this JSON, which describes an element of a set, or the set.
    fn json(&self, set: &str, mut json: Map<String, Json>) -> Response<BlobBody> {
        if self.metadata >= MetadataLevel::Minimal {
            json.insert(
                "odata.metadata".to_owned(),
                format!("{}/$metadata#{set}", self.base).into(),
            );
        }
        let mut response = Response::new(BlobBody::from(Json::Object(json).to_string()));
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static(self.metadata.content_type()),
        );
        response.headers_mut().extend([DATA_SERVICE_VERSION]);
        response
    }

    /// Adds the URL of a new entity.
    pub(crate) fn locate(&self, headers: &mut HeaderMap, table: &TableName, key: &EntityKey) {
        let address = HeaderValue::from_str(&format!("{}/{}", self.base, address(table, key)));
        headers.extend(address.ok().map(|address| (LOCATION, address)));
    }
}

/// An empty response.
pub(crate) fn empty() -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Adds the tag of an entity.
pub(crate) fn tag(headers: &mut HeaderMap, generation: Revision) {
    headers.extend(
        HeaderValue::from_str(&etag::of(generation))
            .ok()
            .map(|tag| (ETAG, tag)),
    );
}

/// Returns the path of an entity, below the account.
fn address(table: &TableName, key: &EntityKey) -> String {
    let mut address = format!("{table}(");
    for (name, key, end) in [
        (PARTITION_KEY, &key.partition, ","),
        (ROW_KEY, &key.row, ")"),
    ] {
        let doubled = key.replace('\'', "''");
        let _ = write!(
            address,
            "{name}='{}'{end}",
            utf8_percent_encode(&doubled, ADDRESS)
        );
    }
    address
}
