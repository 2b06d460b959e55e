//! List Containers and List Blobs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use http::Response;
use http::header::HOST;
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::Lease;

use super::error::AzureError;
use super::read::creation_date;
use super::xml::Xml;
use super::{Call, fields, response, target};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{BlobEntry, ContainerEntry, ListQuery};

/// Maximum and default number of items in a page.
const MAX_RESULTS: usize = 5000;
/// Values of `include` for a listing of blobs. All except metadata leave the listing unchanged: the service keeps no
/// copies, snapshots, versions, tags, policies or deleted blobs, and does not list blobs with only staged blocks.
const OF_BLOBS: [&str; 11] = [
    "metadata",
    "copy",
    "deleted",
    "deletedwithversions",
    "immutabilitypolicy",
    "legalhold",
    "permissions",
    "snapshots",
    "tags",
    "uncommittedblobs",
    "versions",
];
/// Values of `include` for a listing of containers. There are no deleted or system containers.
const OF_CONTAINERS: [&str; 3] = ["metadata", "deleted", "system"];
/// Number of entries read from the store at a time.
const STEP: usize = 500;
/// Sorts after all names with the same prefix.
const LAST: char = char::MAX;

pub(super) async fn blobs(call: &Call, container: &ContainerName) -> Result<Response<BlobBody>, AzureError> {
    let request = Listing::of(call, &OF_BLOBS)?;
    let own_prefix = target::prefix(&call.account, &call.accounts);
    let name = container.as_str().strip_prefix(&own_prefix).unwrap_or(container.as_str());
    let attributes = [("ServiceEndpoint", endpoint(call)), ("ContainerName", name.to_owned())];
    let mut xml = request.begin(&attributes.each_ref().map(|(name, value)| (*name, value.as_str())));
    xml.open("Blobs");
    let now = call.shared.now();
    let mut after = request.marker.clone();
    let (mut count, mut next) = (0, None);
    'pages: loop {
        let limit = (request.limit - count).saturating_add(1).min(STEP);
        let query = ListQuery { prefix: request.prefix.clone(), after: after.clone(), limit };
        let page = call.shared.store.list(container, &query).await.map_err(AzureError::of_container)?;
        let page = page.ok_or_else(AzureError::container_not_found)?;
        for entry in &page.items {
            if after.as_deref().is_some_and(|after| entry.name.as_str() <= after) {
                continue;
            }
            let folder = request.folder(entry.name.as_str());
            if folder.zip(after.as_deref()).is_some_and(|(folder, after)| is_behind(after, folder)) {
                after = Some(entry.name.as_str().to_owned());
                continue;
            }
            if count == request.limit {
                next = after;
                break 'pages;
            }
            count += 1;
            if let Some(folder) = folder {
                xml.open("BlobPrefix");
                xml.blob_name(folder);
                xml.close("BlobPrefix");
                // Skips the rest of the folder, except for names that begin with the last character.
                after = Some(format!("{folder}{LAST}"));
                continue;
            }
            add_blob(&mut xml, entry, request.with_metadata, now);
            after = Some(entry.name.as_str().to_owned());
        }
        if page.next.is_none() {
            break;
        }
    }
    xml.close("Blobs");
    Ok(end(xml, next))
}

/// Returns `true` if a listing that continues after this name has already shown the folder.
fn is_behind(after: &str, folder: &str) -> bool {
    after.strip_prefix(folder).is_some_and(|inner| inner.starts_with(LAST))
}

pub(super) async fn containers(call: &Call) -> Result<Response<BlobBody>, AzureError> {
    let request = Listing::of(call, &OF_CONTAINERS)?;
    let own_prefix = target::prefix(&call.account, &call.accounts);
    let mut xml = request.begin(&[("ServiceEndpoint", &endpoint(call))]);
    xml.open("Containers");
    let now = call.shared.now();
    let mut after = request.marker.as_ref().map(|marker| format!("{own_prefix}{marker}"));
    let mut last: Option<String> = None;
    let (mut count, mut next) = (0, None);
    'pages: loop {
        let query = ListQuery { prefix: format!("{own_prefix}{}", request.prefix), after: after.clone(), limit: STEP };
        let page = call.shared.store.containers(&query).await.map_err(AzureError::of_container)?;
        for entry in &page.items {
            // Other names belong to the plain dialect, or to another account.
            let name = entry.name.as_str().strip_prefix(&own_prefix).filter(|name| target::is_container_name(name));
            let Some(name) = name else { continue };
            if count == request.limit {
                next = last;
                break 'pages;
            }
            count += 1;
            add_container(&mut xml, name, entry, request.with_metadata, now);
            last = Some(name.to_owned());
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    xml.close("Containers");
    Ok(end(xml, next))
}

/// The parameters of a listing.
struct Listing {
    prefix: String,
    delimiter: Option<String>,
    marker: Option<String>,
    limit: usize,
    with_metadata: bool,
    max_results: Option<String>,
}

impl Listing {
    /// Parses the request, with these values allowed for `include`.
    fn of(call: &Call, includes: &[&str]) -> Result<Self, AzureError> {
        let query = &call.query;
        let text = |name| query.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let marker = text("marker").map(|marker| {
            let name = URL_SAFE.decode(marker).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            name.ok_or_else(|| AzureError::invalid_parameter("marker", "must be the NextMarker of the previous page"))
        });
        let include: Vec<&str> = query.get("include").unwrap_or_default().split(',').map(str::trim).collect();
        if let Some(unknown) = include.iter().find(|name| !name.is_empty() && !includes.contains(name)) {
            let rule = format!("{unknown} is unknown; known values are {}", includes.join(", "));
            return Err(AzureError::invalid_parameter("include", &rule));
        }
        Ok(Self {
            prefix: text("prefix").unwrap_or_default(),
            delimiter: text("delimiter"),
            marker: marker.transpose()?,
            limit: limit(query.get("maxresults"))?,
            with_metadata: include.contains(&"metadata"),
            max_results: text("maxresults"),
        })
    }

    /// Returns the folder of a name, which stands for all names in it.
    fn folder<'a>(&self, name: &'a str) -> Option<&'a str> {
        let delimiter = self.delimiter.as_deref()?;
        let at = name.get(self.prefix.len()..)?.find(delimiter)?;
        name.get(..self.prefix.len() + at + delimiter.len())
    }

    fn begin(&self, attributes: &[(&str, &str)]) -> Xml {
        let mut xml = Xml::begin_with("EnumerationResults", attributes);
        xml.text("Prefix", &self.prefix);
        xml.maybe("Marker", self.marker.as_ref().map(|marker| URL_SAFE.encode(marker)).as_deref());
        if let Some(max_results) = &self.max_results {
            xml.text("MaxResults", max_results);
        }
        if let Some(delimiter) = &self.delimiter {
            xml.text("Delimiter", delimiter);
        }
        xml
    }
}

fn limit(text: Option<&str>) -> Result<usize, AzureError> {
    match text.map(str::parse::<usize>) {
        None => Ok(MAX_RESULTS),
        Some(Ok(limit @ 1..)) => Ok(limit.min(MAX_RESULTS)),
        Some(Ok(0)) => Err(AzureError::bad_request("OutOfRangeQueryParameterValue", "maxresults must be at least 1")),
        Some(Err(_)) => Err(AzureError::invalid_parameter("maxresults", "must be a number")),
    }
}

fn end(mut xml: Xml, next: Option<String>) -> Response<BlobBody> {
    xml.maybe("NextMarker", next.map(|next| URL_SAFE.encode(next)).as_deref());
    response::document(xml.end("EnumerationResults"))
}

/// Returns the URL by which the client addressed the account.
fn endpoint(call: &Call) -> String {
    let host = call.head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or(call.head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or_default();
    format!("{}://{host}/{}/", call.head.uri.scheme_str().unwrap_or("http"), call.account.name())
}

fn add_blob(xml: &mut Xml, entry: &BlobEntry, with_metadata: bool, now: Timestamp) {
    let info = &entry.info;
    let field = |field: &Option<FieldText>| field.as_ref().map(|text| text.as_str().to_owned());
    xml.open("Blob");
    xml.blob_name(entry.name.as_str());
    xml.open("Properties");
    if let Some(created) = info.created {
        xml.text("Creation-Time", &creation_date(created).to_string());
    }
    xml.text("Last-Modified", &info.last_modified.to_string());
    add_tag(xml, info.tag.as_ref());
    xml.text("Content-Length", &info.length.to_string());
    let media_type = field(&info.headers.content_type);
    xml.text("Content-Type", media_type.as_deref().unwrap_or("application/octet-stream"));
    xml.maybe("Content-Encoding", field(&info.headers.content_encoding).as_deref());
    xml.maybe("Content-Language", field(&info.headers.content_language).as_deref());
    if let Some(md5) = info.headers.content_md5 {
        xml.text("Content-MD5", &md5.to_string());
    }
    xml.maybe("Content-Disposition", field(&info.headers.content_disposition).as_deref());
    xml.maybe("Cache-Control", field(&info.headers.cache_control).as_deref());
    xml.text("BlobType", "BlockBlob");
    add_lease(xml, info.lease.as_ref(), now);
    xml.text("ServerEncrypted", "false");
    xml.close("Properties");
    if with_metadata {
        add_metadata(xml, &info.headers);
    }
    xml.close("Blob");
}

fn add_container(xml: &mut Xml, name: &str, entry: &ContainerEntry, with_metadata: bool, now: Timestamp) {
    let info = &entry.info;
    xml.open("Container");
    xml.text("Name", name);
    xml.open("Properties");
    if let Some(date) = info.last_modified {
        xml.text("Last-Modified", &date.to_string());
    }
    add_tag(xml, info.tag.as_ref());
    add_lease(xml, info.lease.as_ref(), now);
    xml.close("Properties");
    if with_metadata {
        add_metadata(xml, &info.headers);
    }
    xml.close("Container");
}

/// Adds a tag, which listings show without quotes.
fn add_tag(xml: &mut Xml, tag: Option<&EntityTag>) {
    if let Some(tag) = tag {
        xml.text("Etag", tag.to_string().trim_matches('"'));
    }
}

fn add_lease(xml: &mut Xml, held: Option<&Lease>, now: Timestamp) {
    let (state, status, duration) = fields::lease_properties(held, now);
    xml.text("LeaseStatus", status);
    xml.text("LeaseState", state);
    if let Some(duration) = duration {
        xml.text("LeaseDuration", duration);
    }
}

/// Adds the metadata. Blobs written in the plain dialect may have names that are not valid elements.
fn add_metadata(xml: &mut Xml, headers: &BlobHeaders) {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_element = |name: &str| {
        name.bytes().all(inner) && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
    };
    xml.open("Metadata");
    for (name, value) in &headers.metadata {
        if is_element(name) {
            xml.text(name, value.as_str());
        } else {
            xml.text("x-ms-invalid-name", name);
        }
    }
    xml.close("Metadata");
}
