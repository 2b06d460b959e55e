//! Listings, as JSON.

use std::collections::BTreeMap;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::problem::Problem;
use serde::Serialize;

use crate::body::BlobBody;
use crate::dialect::Context;
use crate::headers::FieldText;
use crate::name::{self, ContainerName};
use crate::store::{BlobEntry, ContainerEntry, Hierarchy, ListQuery, Listed, StoreError};

/// Maximum and default number of names per page.
const MAX_LIMIT: usize = 1000;

/// Answers a GET or HEAD of a container with a page of its blobs.
pub(super) async fn blobs(
    shared: &Context,
    head: &Parts,
    container: &ContainerName,
) -> Result<Response<BlobBody>, Problem> {
    let query = parse(head.uri.query().unwrap_or_default())?;
    let listing = Hierarchy {
        prefix: &query.prefix,
        delimiter: query.delimiter.as_deref(),
        after: query.after.clone(),
        start: None,
        limit: query.limit,
        leases: false,
    };
    let mut memory = shared
        .documents
        .begin_answer(head.extensions.get().copied())
        .map_err(StoreError::from)?;
    let page = listing
        .list(shared.store.as_ref(), container, &mut memory)
        .await?;
    let page =
        page.ok_or_else(|| Problem::not_found().detail("no such container. Check its name"))?;
    let now = shared.wall();
    let (mut items, mut folders) = (Vec::new(), Vec::new());
    for listed in &page.items {
        match listed {
            Listed::Blob(entry) => items.push(blob(entry, now)),
            Listed::Folder(name) => folders.push(&**name),
        }
    }
    let folders = query.delimiter.as_ref().map(|_| folders);
    answer(
        shared,
        head,
        &BlobPage {
            container: container.as_str(),
            items,
            folders,
            next: page.next.as_deref(),
        },
    )
}

/// Answers a GET or HEAD of `/` with a page of the containers.
pub(super) async fn containers(
    shared: &Context,
    head: &Parts,
) -> Result<Response<BlobBody>, Problem> {
    let query = parse(head.uri.query().unwrap_or_default())?;
    if query.delimiter.is_some() {
        return Err(Problem::bad_request(
            "a list of containers has no delimiter: their names have no folders",
        ));
    }
    let mut memory = shared
        .documents
        .begin_answer(head.extensions.get().copied())
        .map_err(StoreError::from)?;
    let page = shared.store.containers(&query).await?;
    let size = page.items.iter().map(ContainerEntry::size).sum();
    memory.grow(size).map_err(StoreError::from)?;
    let now = shared.wall();
    let items: Vec<ContainerItem<'_>> = page
        .items
        .iter()
        .map(|entry| self::container(entry, now))
        .collect();
    answer(
        shared,
        head,
        &ContainerPage {
            items,
            next: page.next.as_deref(),
        },
    )
}

#[derive(Serialize)]
struct BlobPage<'a> {
    container: &'a str,
    #[serde(rename = "blobs")]
    items: Vec<BlobItem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folders: Option<Vec<&'a str>>,
    next: Option<&'a str>,
}

#[derive(Serialize)]
struct ContainerPage<'a> {
    #[serde(rename = "containers")]
    items: Vec<ContainerItem<'a>>,
    next: Option<&'a str>,
}

#[derive(Serialize)]
struct BlobItem<'a> {
    name: &'a str,
    etag: Option<String>,
    size: u64,
    content_type: Option<&'a str>,
    last_modified: Option<String>,
    metadata: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct ContainerItem<'a> {
    name: &'a str,
    last_modified: Option<String>,
}

fn blob(entry: &BlobEntry, now: Timestamp) -> BlobItem<'_> {
    let info = &entry.info;
    BlobItem {
        name: entry.name.as_str(),
        etag: info.tag.as_ref().map(ToString::to_string),
        size: info.length,
        content_type: info.headers.content_type.as_ref().map(FieldText::as_str),
        last_modified: date(Some(info.last_modified), now),
        metadata: info
            .headers
            .metadata
            .iter()
            .map(|(name, value)| (&**name, value.as_str()))
            .collect(),
    }
}

fn container(entry: &ContainerEntry, now: Timestamp) -> ContainerItem<'_> {
    ContainerItem {
        name: entry.name.as_str(),
        last_modified: date(entry.info.last_modified, now),
    }
}

/// Formats a date once its second has come, as in a header field.
fn date(date: Option<HttpDate>, now: Timestamp) -> Option<String> {
    date.filter(|date| date.has_come(now))
        .map(|date| date.to_string())
}

#[expect(clippy::expect_used, reason = "all keys are text")]
fn answer(
    shared: &Context,
    head: &Parts,
    listing: &impl Serialize,
) -> Result<Response<BlobBody>, Problem> {
    let text = serde_json::to_string(listing).expect("keys are text");
    let length = text.len();
    let body = if head.method == Method::HEAD {
        BlobBody::empty()
    } else {
        text.into()
    };
    let body = shared
        .documents
        .count(head.extensions.get().copied(), body)
        .map_err(StoreError::from)?;
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn parse(query: &str) -> Result<ListQuery, Problem> {
    let mut parsed = ListQuery::first(MAX_LIMIT);
    for parameter in name::parameters(query) {
        let (name, value) = parameter.map_err(|error| Problem::bad_request(error.to_string()))?;
        match &*name {
            "prefix" => parsed.prefix = value.into_owned(),
            "after" => parsed.after = Some(value.into_owned()),
            "limit" => parsed.limit = limit(&value)?,
            "delimiter" if !value.is_empty() => parsed.delimiter = Some(value.into_owned()),
            _ => {
                return Err(Problem::bad_request(
                    "unknown parameter. A listing takes prefix, after, limit and delimiter",
                ));
            }
        }
    }
    Ok(parsed)
}

fn limit(text: &str) -> Result<usize, Problem> {
    match text.parse::<u64>() {
        Ok(limit @ 1..) => Ok(usize::try_from(limit).unwrap_or(MAX_LIMIT).min(MAX_LIMIT)),
        _ => Err(Problem::bad_request(format!(
            "limit isn't a number from 1 to {MAX_LIMIT}"
        ))),
    }
}
