//! Operations on containers and their service, and listings.

use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::documents::{DocumentMemory, PAGE};
use ifmatch_blob::headers::{BlobHeaders, FieldText, Tier};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    BlobEntry, BlobInfo, ContainerEntry, ContainerInfo, Delete, HeaderChange, Hierarchy, ListQuery,
    Listed, SetHeaders, Upload,
};
use ifmatch_core::EntityTag;
use ifmatch_core::lease::{LeaseUse, SeenLease};

use crate::auth::access_policy;
use crate::blobs::tags;
use crate::error::AzureError;
use crate::policies;
use crate::request::conditions::WriteConditions;
use crate::request::snapshot::SnapshotTime;
use crate::request::{ContainerWrite, LeaseParameters, ListParameters, RequestDocument, marker_at};
use crate::response::XmlWriter;
use crate::response::{self, headers};
use crate::{body, lookup, snapshots};

/// Create Container.
pub(crate) async fn create_container(
    context: &Context,
    container: &ContainerName,
    headers: BlobHeaders,
) -> Result<Response<BlobBody>, AzureError> {
    let created = context
        .store
        .create_container(container, headers)
        .await
        .map_err(AzureError::of_container)?;
    Ok(changed(StatusCode::CREATED, &created))
}

/// Get Container Properties and Get Container Metadata.
pub(crate) async fn get_container(
    context: &Context,
    container: &ContainerName,
    lease: LeaseUse,
) -> Result<Response<BlobBody>, AzureError> {
    let info = read(context, container, lease).await?;
    let mut response = changed(StatusCode::OK, &info);
    headers::add_metadata(response.headers_mut(), &info.headers);
    headers::add_lease(response.headers_mut(), info.lease.as_ref());
    // The SDK for C++ reads both without asking if they are there.
    for name in ["x-ms-has-immutability-policy", "x-ms-has-legal-hold"] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static("false"));
    }
    Ok(response)
}

/// Changes the metadata or the policies.
pub(crate) async fn set_container(
    context: &Context,
    container: &ContainerName,
    write: ContainerWrite,
    change: HeaderChange,
) -> Result<Response<BlobBody>, AzureError> {
    let ContainerWrite {
        conditions,
        lease,
        request,
    } = write;
    check(context, container, &conditions, lease).await?;
    let set = SetHeaders {
        preconditions: conditions.preconditions,
        lease,
        request,
        ..SetHeaders::new(change)
    };
    let info = context
        .store
        .set_container(container, set)
        .await
        .map_err(AzureError::of_container)?;
    Ok(changed(StatusCode::OK, &info))
}

/// Get Container ACL.
pub(crate) async fn get_policies(
    context: &Context,
    container: &ContainerName,
    lease: LeaseUse,
) -> Result<Response<BlobBody>, AzureError> {
    let info = read(context, container, lease).await?;
    let mut response = response::document(policies::document(&access_policy::of(&info.headers)));
    response
        .headers_mut()
        .extend(info.tag.as_ref().map(|tag| (ETAG, tag.to_header())));
    response.headers_mut().extend(
        info.last_modified
            .map(|date| (LAST_MODIFIED, date.to_header())),
    );
    Ok(response)
}

/// Set Container ACL.
pub(crate) async fn set_policies(
    context: &Context,
    container: &ContainerName,
    write: ContainerWrite,
    document: RequestDocument,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let policies = policies::parse(&body::read(context, document, body).await?)?;
    set_container(context, container, write, HeaderChange::Policies(policies)).await
}

/// Lease Container.
pub(crate) async fn lease_container(
    context: &Context,
    container: &ContainerName,
    lease: LeaseParameters,
) -> Result<Response<BlobBody>, AzureError> {
    let LeaseParameters {
        conditions,
        request,
    } = lease;
    let action = request.action;
    check(context, container, &conditions, LeaseUse::Read(None)).await?;
    let leased = context
        .store
        .lease_container(container, request)
        .await
        .map_err(AzureError::of_container)?;
    Ok(response::leased(action, &leased))
}

/// Delete Container.
pub(crate) async fn delete_container(
    context: &Context,
    container: &ContainerName,
    write: ContainerWrite,
) -> Result<Response<BlobBody>, AzureError> {
    let ContainerWrite {
        conditions,
        lease,
        request,
    } = write;
    check(context, container, &conditions, lease).await?;
    let delete = Delete {
        preconditions: conditions.preconditions,
        lease,
        request,
        ..Delete::default()
    };
    context
        .store
        .delete_container(container, delete)
        .await
        .map_err(AzureError::of_container)?;
    Ok(response::empty(StatusCode::ACCEPTED, None, None))
}

/// Returns the container for a request that may name its lease.
async fn read(
    context: &Context,
    container: &ContainerName,
    lease: LeaseUse,
) -> Result<ContainerInfo, AzureError> {
    let info = lookup::container(context, container).await?;
    SeenLease::check(info.lease.as_ref(), lease).map_err(AzureError::of_container)?;
    Ok(info)
}

/// Checks the conditions that the store doesn't evaluate.
async fn check(
    context: &Context,
    container: &ContainerName,
    conditions: &WriteConditions,
    lease: LeaseUse,
) -> Result<(), AzureError> {
    if !conditions.need_check() {
        return Ok(());
    }
    let info = lookup::container(context, container).await?;
    conditions.check(info.last_modified, info.lease.as_ref(), lease)
}

/// Builds a response with the tag and date of a container.
fn changed(status: StatusCode, info: &ContainerInfo) -> Response<BlobBody> {
    response::empty(status, info.tag.as_ref(), info.last_modified)
}

/// List Blobs.
pub(crate) async fn list_blobs(
    context: &Context,
    container: &ContainerName,
    list: &ListParameters,
) -> Result<Response<BlobBody>, AzureError> {
    let name = list.container_name(container).unwrap_or(container.as_str());
    let mut xml = begin(
        list,
        &[("ServiceEndpoint", &list.endpoint), ("ContainerName", name)],
    );
    xml.open("Blobs");
    let listing = Hierarchy {
        prefix: &list.prefix,
        delimiter: list.delimiter.as_deref(),
        after: list.marker.clone().filter(|_| list.resume.is_none()),
        start: list.start.as_deref(),
        limit: list.limit,
        leases: true,
    };
    let mut found = context
        .documents
        .begin_answer(list.client)
        .map_err(AzureError::crowded)?;
    let listing = listing
        .list(&*context.store, container, &mut found)
        .await
        .map_err(AzureError::of_container)?;
    let listing = listing.ok_or_else(AzureError::container_not_found)?;
    let with_snapshots = if list.with_snapshots {
        Some(lookup::container(context, container).await?)
    } else {
        None
    };
    let mut page = BlobPage {
        xml,
        list,
        left: list.limit,
        memory: context.documents.begin(list.client),
        counted: 0,
    };
    for item in &listing.items {
        let stopped = match item {
            Listed::Folder(folder) => page.add_folder(folder)?,
            Listed::Blob(entry) => match &with_snapshots {
                Some(info) => {
                    page.add_with_snapshots(context, (container, info), entry)
                        .await?
                }
                None => page.add(entry.name.as_str(), &entry.info, None)?,
            },
        };
        if let ControlFlow::Break(marker) = stopped {
            return Ok(page.end(Some(marker)));
        }
    }
    Ok(page.end(listing.next))
}

/// A page that is being written.
struct BlobPage<'a> {
    xml: XmlWriter,
    list: &'a ListParameters,
    /// Number of items that fit in.
    left: usize,
    memory: DocumentMemory,
    /// Number of bytes of the text for which memory was taken.
    counted: usize,
}

impl BlobPage<'_> {
    /// Writes an item, unless the page is full. Then the listing ends with the marker of this name.
    fn write(
        &mut self,
        name: &str,
        item: impl FnOnce(&mut XmlWriter, &ListParameters),
    ) -> Result<ControlFlow<String>, AzureError> {
        if self.left == 0 || self.xml.len() >= PAGE {
            return Ok(ControlFlow::Break(marker_at(name, None)));
        }
        self.left -= 1;
        item(&mut self.xml, self.list);
        let length = self.xml.len();
        self.memory
            .grow(length - self.counted)
            .map_err(AzureError::crowded)?;
        self.counted = length;
        Ok(ControlFlow::Continue(()))
    }

    fn add_folder(&mut self, folder: &str) -> Result<ControlFlow<String>, AzureError> {
        self.write(folder, |xml, _| {
            xml.open("BlobPrefix");
            xml.blob_name(folder);
            xml.close("BlobPrefix");
        })
    }

    fn add(
        &mut self,
        name: &str,
        info: &BlobInfo,
        snapshot: Option<SnapshotTime>,
    ) -> Result<ControlFlow<String>, AzureError> {
        self.write(name, |xml, list| add_blob(xml, name, info, snapshot, list))
    }

    /// Adds the snapshots of a blob, from the oldest on, and then the blob.
    async fn add_with_snapshots(
        &mut self,
        context: &Context,
        (container, info): (&ContainerName, &ContainerInfo),
        entry: &BlobEntry,
    ) -> Result<ControlFlow<String>, AzureError> {
        let name = entry.name.as_str();
        let blob = BlobPath {
            container: container.clone(),
            name: entry.name.clone(),
        };
        let mut after = self
            .list
            .resume
            .as_ref()
            .filter(|(from, _)| from == name)
            .and_then(|(_, after)| *after);
        loop {
            let (snapshots, has_more) =
                snapshots::of_listed(context, info, (&blob, &entry.info), after).await?;
            for (time, info) in &snapshots {
                if self.add(name, info, Some(*time))?.is_break() {
                    return Ok(ControlFlow::Break(marker_at(name, after)));
                }
                after = Some(*time);
            }
            if !has_more {
                break;
            }
        }
        Ok(self
            .add(name, &entry.info, None)?
            .map_break(|_| marker_at(name, after)))
    }

    fn end(mut self, next: Option<String>) -> Response<BlobBody> {
        self.xml.close("Blobs");
        end(self.xml, next, self.memory)
    }
}

/// Number of containers read from the store at a time.
const STEP: usize = 500;

/// List Containers.
pub(crate) async fn list_containers(
    context: &Context,
    list: &ListParameters,
) -> Result<Response<BlobBody>, AzureError> {
    let prefix = list.account_prefix();
    let mut xml = begin(list, &[("ServiceEndpoint", &list.endpoint)]);
    xml.open("Containers");
    let mut after = list
        .marker
        .as_ref()
        .map(|marker| format!("{prefix}{marker}"));
    let mut shown: Option<String> = None;
    let (mut count, mut next) = (0, None);
    let mut memory = context
        .documents
        .begin_answer(list.client)
        .map_err(AzureError::crowded)?;
    let mut counted = 0;
    'pages: loop {
        let query = ListQuery {
            prefix: format!("{prefix}{}", list.prefix),
            after: after.clone(),
            limit: STEP,
            leases: true,
            delimiter: None,
        };
        let page = context
            .store
            .containers(&query)
            .await
            .map_err(AzureError::of_container)?;
        for entry in &page.items {
            // Other names belong to the plain dialect, or to another account.
            let Some(name) = list.container_name(&entry.name) else {
                continue;
            };
            if count == list.limit || xml.len() >= PAGE {
                next = shown;
                break 'pages;
            }
            count += 1;
            add_container(&mut xml, name, entry, list.with_metadata);
            memory
                .grow(xml.len() - counted)
                .map_err(AzureError::crowded)?;
            counted = xml.len();
            shown = Some(name.to_owned());
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    xml.close("Containers");
    Ok(end(xml, next, memory))
}

/// Begins the document of a listing.
fn begin(list: &ListParameters, attributes: &[(&str, &str)]) -> XmlWriter {
    let mut xml = XmlWriter::begin_with("EnumerationResults", attributes);
    xml.text("Prefix", &list.prefix);
    xml.maybe(
        "Marker",
        list.marker
            .as_ref()
            .map(|marker| URL_SAFE.encode(marker))
            .as_deref(),
    );
    if let Some(max_results) = &list.max_results {
        xml.text("MaxResults", max_results);
    }
    if let Some(delimiter) = &list.delimiter {
        xml.text("Delimiter", delimiter);
    }
    xml
}

/// Ends the document of a listing, which holds its memory until it is sent.
fn end(mut xml: XmlWriter, next: Option<String>, memory: DocumentMemory) -> Response<BlobBody> {
    xml.maybe(
        "NextMarker",
        next.map(|next| URL_SAFE.encode(next)).as_deref(),
    );
    response::document(memory.hold(xml.end("EnumerationResults")))
}

/// Returns the text of a field.
fn text(field: Option<&FieldText>) -> Option<&str> {
    field.map(FieldText::as_str)
}

/// Adds an item of List Blobs.
fn add_blob(
    xml: &mut XmlWriter,
    name: &str,
    info: &BlobInfo,
    snapshot: Option<SnapshotTime>,
    list: &ListParameters,
) {
    xml.open("Blob");
    xml.blob_name(name);
    if let Some(time) = snapshot {
        xml.text("Snapshot", &time.to_string());
    }
    xml.open("Properties");
    xml.text("Creation-Time", &headers::creation_date(info).to_string());
    xml.text("Last-Modified", &info.last_modified.to_string());
    add_tag(xml, info.tag.as_ref());
    xml.text("Content-Length", &info.length.to_string());
    let stored = &info.headers;
    xml.text(
        "Content-Type",
        text(stored.content_type.as_ref()).unwrap_or(headers::DEFAULT_CONTENT_TYPE),
    );
    xml.maybe("Content-Encoding", text(stored.content_encoding.as_ref()));
    xml.maybe("Content-Language", text(stored.content_language.as_ref()));
    if let Some(md5) = info.headers.content_md5 {
        xml.text("Content-MD5", &md5.to_string());
    }
    xml.maybe(
        "Content-Disposition",
        text(stored.content_disposition.as_ref()),
    );
    xml.maybe("Cache-Control", text(stored.cache_control.as_ref()));
    xml.text("BlobType", headers::blob_type(&info.headers));
    if info.headers.append.is_some_and(|append| append.sealed) {
        xml.text("Sealed", "true");
    }
    xml.text("AccessTier", headers::tier(&info.headers));
    match &info.headers.tier {
        None => xml.text("AccessTierInferred", "true"),
        Some(Tier { changed, .. }) => {
            if let Some(changed) = changed {
                xml.text("AccessTierChangeTime", &changed.to_string());
            }
        }
    }
    if snapshot.is_none() {
        add_lease(xml, info.lease.as_ref());
    }
    if let Some(copied) = info.headers.copied.as_ref().filter(|_| list.with_copies) {
        xml.text("CopyId", copied.id.as_str());
        xml.text("CopySource", copied.source.as_str());
        xml.text("CopyStatus", "success");
        xml.text("CopyProgress", &headers::progress(copied));
        xml.text("CopyCompletionTime", &copied.date.to_string());
    }
    xml.text("ServerEncrypted", "false");
    if !info.headers.tags.is_empty() {
        xml.text("TagCount", &info.headers.tags.len().to_string());
    }
    xml.close("Properties");
    if list.with_metadata {
        add_metadata(xml, &info.headers);
    }
    if list.with_tags && !info.headers.tags.is_empty() {
        xml.open("Tags");
        tags::add(xml, &info.headers.tags);
        xml.close("Tags");
    }
    xml.close("Blob");
}

/// Adds an item of List Containers.
fn add_container(xml: &mut XmlWriter, name: &str, entry: &ContainerEntry, with_metadata: bool) {
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
fn add_tag(xml: &mut XmlWriter, tag: Option<&EntityTag>) {
    if let Some(tag) = tag {
        xml.text("Etag", tag.to_string().trim_matches('"'));
    }
}

fn add_lease(xml: &mut XmlWriter, seen: Option<&SeenLease>) {
    let (state, status, duration) = headers::lease_properties(seen);
    xml.text("LeaseStatus", status);
    xml.text("LeaseState", state);
    if let Some(duration) = duration {
        xml.text("LeaseDuration", duration);
    }
}

/// Adds the metadata. Blobs written in the plain dialect may have names that aren't valid elements.
fn add_metadata(xml: &mut XmlWriter, stored: &BlobHeaders) {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_element = |name: &str| {
        name.bytes().all(inner)
            && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
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
