//! List Containers and List Blobs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{BlobEntry, ContainerEntry, ListQuery};
use ifmatch_core::EntityTag;
use ifmatch_core::lease::SeenLease;

use crate::error::AzureError;
use crate::request::List;
use crate::response::{self, headers, xml::Xml};

/// Number of entries read from the store at a time.
const STEP: usize = 500;
/// Sorts after all names with the same prefix.
const LAST: char = char::MAX;

pub(crate) async fn list_blobs(
    context: &Context,
    container: &ContainerName,
    list: &List,
) -> Result<Response<BlobBody>, AzureError> {
    let name = list.container_name(container).unwrap_or(container.as_str());
    let mut xml = begin(list, &[("ServiceEndpoint", &list.endpoint), ("ContainerName", name)]);
    xml.open("Blobs");
    // The marker of a later page.
    let mut after = list.marker.clone().max(list.start.as_deref().map(before));
    let (mut count, mut next) = (0, None);
    'pages: loop {
        let limit = (list.limit - count).saturating_add(1).min(STEP);
        let query = ListQuery {
            prefix: list.prefix.clone(),
            after: after.clone(),
            limit,
            leases: true,
            delimiter: list.delimiter.clone(),
        };
        let page = context.store.list(container, &query).await.map_err(AzureError::of_container)?;
        let page = page.ok_or_else(AzureError::container_not_found)?;
        for entry in &page.items {
            let is_before = list.start.as_deref().is_some_and(|start| entry.name.as_str() < start);
            if is_before || after.as_deref().is_some_and(|after| entry.name.as_str() <= after) {
                continue;
            }
            let folder = query.folder(entry.name.as_str());
            if folder.zip(after.as_deref()).is_some_and(|(folder, after)| is_behind(after, folder)) {
                after = Some(entry.name.as_str().to_owned());
                continue;
            }
            if count == list.limit {
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
            add_blob(&mut xml, entry, list);
            after = Some(entry.name.as_str().to_owned());
        }
        let Some(end) = page.next else { break };
        // The last names of a page may be missing from it, and the rest of a folder is skipped beyond its end.
        after = after.max(Some(end));
    }
    xml.close("Blobs");
    Ok(end(xml, next))
}

/// Returns a name right before `start`: a listing after it begins with `start`, except for names with the last character.
fn before(start: &str) -> String {
    let mut name = start.to_owned();
    let last = name.pop().map_or(0, u32::from);
    // Below the surrogates, where the range of characters has a gap.
    if let Some(previous) = (0..last).next_back().and_then(|code| char::from_u32(code).or(char::from_u32(0xd7ff))) {
        name.extend([previous, LAST]);
    }
    name
}

/// Returns `true` if a listing that continues after this name has already shown the folder.
fn is_behind(after: &str, folder: &str) -> bool {
    after.strip_prefix(folder).is_some_and(|inner| inner.starts_with(LAST))
}

pub(crate) async fn list_containers(context: &Context, list: &List) -> Result<Response<BlobBody>, AzureError> {
    let prefix = &list.account_prefix;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_before_another_is_smaller_by_as_little_as_possible() {
        for (start, expected) in
            [("b", "a\u{10ffff}"), ("a/b", "a/a\u{10ffff}"), ("a\0", "a"), ("\u{e000}", "\u{d7ff}\u{10ffff}"), ("", "")]
        {
            assert_eq!(before(start), expected, "{start:?}");
            assert!(before(start).as_str() < start || start.is_empty(), "{start:?}");
        }
    }
}
