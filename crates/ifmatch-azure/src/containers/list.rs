//! List Containers and List Blobs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{BlobEntry, ContainerEntry, Hierarchy, ListQuery, Listed};
use ifmatch_core::EntityTag;
use ifmatch_core::lease::SeenLease;

use crate::error::AzureError;
use crate::request::List;
use crate::response::{self, headers, xml::Xml};

/// Number of entries read from the store at a time.
const STEP: usize = 500;

pub(crate) async fn list_blobs(
    context: &Context,
    container: &ContainerName,
    list: &List,
) -> Result<Response<BlobBody>, AzureError> {
    let name = list.container_name(container).unwrap_or(container.as_str());
    let mut xml = begin(list, &[("ServiceEndpoint", &list.endpoint), ("ContainerName", name)]);
    xml.open("Blobs");
    let listing = Hierarchy {
        prefix: &list.prefix,
        delimiter: list.delimiter.as_deref(),
        after: list.marker.clone(),
        start: list.start.as_deref(),
        limit: list.limit,
        leases: true,
    };
    let listing = listing.list(&*context.store, container).await.map_err(AzureError::of_container)?;
    let listing = listing.ok_or_else(AzureError::container_not_found)?;
    for item in &listing.items {
        match item {
            Listed::Blob(entry) => add_blob(&mut xml, entry, list),
            Listed::Folder(folder) => {
                xml.open("BlobPrefix");
                xml.blob_name(folder);
                xml.close("BlobPrefix");
            }
        }
    }
    xml.close("Blobs");
    Ok(end(xml, listing.next))
}

pub(crate) async fn list_containers(context: &Context, list: &List) -> Result<Response<BlobBody>, AzureError> {
    let prefix = list.account_prefix();
    let mut xml = begin(list, &[("ServiceEndpoint", &list.endpoint)]);
    xml.open("Containers");
    let mut after = list.marker.as_ref().map(|marker| format!("{prefix}{marker}"));
    let mut shown: Option<String> = None;
    let (mut count, mut next) = (0, None);
    'pages: loop {
        let query = ListQuery {
            prefix: format!("{prefix}{}", list.prefix),
            after: after.clone(),
            limit: STEP,
            leases: true,
            delimiter: None,
        };
        let page = context.store.containers(&query).await.map_err(AzureError::of_container)?;
        for entry in &page.items {
            // Other names belong to the plain dialect, or to another account.
            let Some(name) = list.container_name(&entry.name) else { continue };
            if count == list.limit {
                next = shown;
                break 'pages;
            }
            count += 1;
            add_container(&mut xml, name, entry, list.with_metadata);
            shown = Some(name.to_owned());
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    xml.close("Containers");
    Ok(end(xml, next))
}

fn begin(list: &List, attributes: &[(&str, &str)]) -> Xml {
    let mut xml = Xml::begin_with("EnumerationResults", attributes);
    xml.text("Prefix", &list.prefix);
    xml.maybe("Marker", list.marker.as_ref().map(|marker| URL_SAFE.encode(marker)).as_deref());
    if let Some(max_results) = &list.max_results {
        xml.text("MaxResults", max_results);
    }
    if let Some(delimiter) = &list.delimiter {
        xml.text("Delimiter", delimiter);
    }
    xml
}

fn end(mut xml: Xml, next: Option<String>) -> Response<BlobBody> {
    xml.maybe("NextMarker", next.map(|next| URL_SAFE.encode(next)).as_deref());
    response::document(xml.end("EnumerationResults"))
}

fn add_blob(xml: &mut Xml, entry: &BlobEntry, list: &List) {
    let info = &entry.info;
    let field = |field: &Option<FieldText>| field.as_ref().map(|text| text.as_str().to_owned());
    xml.open("Blob");
    xml.blob_name(entry.name.as_str());
    xml.open("Properties");
    xml.text("Creation-Time", &headers::creation_date(info).to_string());
    xml.text("Last-Modified", &info.last_modified.to_string());
    add_tag(xml, info.tag.as_ref());
    xml.text("Content-Length", &info.length.to_string());
    let media_type = field(&info.headers.content_type);
    xml.text("Content-Type", media_type.as_deref().unwrap_or(headers::DEFAULT_CONTENT_TYPE));
    xml.maybe("Content-Encoding", field(&info.headers.content_encoding).as_deref());
    xml.maybe("Content-Language", field(&info.headers.content_language).as_deref());
    if let Some(md5) = info.headers.content_md5 {
        xml.text("Content-MD5", &md5.to_string());
    }
    xml.maybe("Content-Disposition", field(&info.headers.content_disposition).as_deref());
    xml.maybe("Cache-Control", field(&info.headers.cache_control).as_deref());
    xml.text("BlobType", headers::blob_type(&info.headers));
    if info.headers.append.is_some_and(|append| append.sealed) {
        xml.text("Sealed", "true");
    }
    xml.text("AccessTier", "Hot");
    xml.text("AccessTierInferred", "true");
    add_lease(xml, info.lease.as_ref());
    if let Some(copied) = info.headers.copied.as_ref().filter(|_| list.with_copies) {
        xml.text("CopyId", copied.id.as_str());
        xml.text("CopySource", copied.source.as_str());
        xml.text("CopyStatus", "success");
        xml.text("CopyProgress", &headers::progress(copied));
        xml.text("CopyCompletionTime", &copied.date.to_string());
    }
    xml.text("ServerEncrypted", "false");
    xml.close("Properties");
    if list.with_metadata {
        add_metadata(xml, &info.headers);
    }
    xml.close("Blob");
}

fn add_container(xml: &mut Xml, name: &str, entry: &ContainerEntry, with_metadata: bool) {
    let info = &entry.info;
    xml.open("Container");
    xml.text("Name", name);
    xml.open("Properties");
    if let Some(date) = info.last_modified {
        xml.text("Last-Modified", &date.to_string());
    }
    add_tag(xml, info.tag.as_ref());
    add_lease(xml, info.lease.as_ref());
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

fn add_lease(xml: &mut Xml, seen: Option<&SeenLease>) {
    let (state, status, duration) = headers::lease_properties(seen);
    xml.text("LeaseStatus", status);
    xml.text("LeaseState", state);
    if let Some(duration) = duration {
        xml.text("LeaseDuration", duration);
    }
}

/// Adds the metadata. Blobs written in the plain dialect may have names that are not valid elements.
fn add_metadata(xml: &mut Xml, stored: &BlobHeaders) {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_element = |name: &str| {
        name.bytes().all(inner) && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
    };
    xml.open("Metadata");
    for (name, value) in &stored.metadata {
        if is_element(name) {
            xml.text(name, value.as_str());
        } else {
            xml.text("x-ms-invalid-name", name);
        }
    }
    xml.close("Metadata");
}
