//! Listings, as JSON.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::problem::Problem;
use serde_json::{Map, Value, json};

use crate::body::BlobBody;
use crate::dialect::Context;
use crate::headers::FieldText;
use crate::name::{self, ContainerName};
use crate::store::{BlobEntry, ContainerEntry, ListQuery};

/// Maximum and default number of names per page.
const MAX_LIMIT: usize = 1000;

pub(super) async fn blobs(
    shared: &Context,
    head: &Parts,
    container: &ContainerName,
) -> Result<Response<BlobBody>, Problem> {
    let query = parse(head.uri.query().unwrap_or_default())?;
    let page = shared.store.list(container, &query).await?;
    let page = page.ok_or_else(|| Problem::not_found().detail("there is no such container"))?;
    let now = shared.wall();
    let blobs: Vec<Value> = page.items.iter().map(|entry| blob(entry, now)).collect();
    let listing = json!({ "container": container.as_str(), "blobs": blobs, "next": page.next });
    Ok(answer(head, &listing))
}

pub(super) async fn containers(shared: &Context, head: &Parts) -> Result<Response<BlobBody>, Problem> {
    let query = parse(head.uri.query().unwrap_or_default())?;
    let page = shared.store.containers(&query).await?;
    let now = shared.wall();
    let containers: Vec<Value> = page.items.iter().map(|entry| self::container(entry, now)).collect();
    Ok(answer(head, &json!({ "containers": containers, "next": page.next })))
}

fn blob(entry: &BlobEntry, now: Timestamp) -> Value {
    let info = &entry.info;
    let metadata: Map<String, Value> =
        info.headers.metadata.iter().map(|(name, value)| (name.to_string(), value.as_str().into())).collect();
    json!({
        "name": entry.name.as_str(),
        "etag": info.tag.as_ref().map(ToString::to_string),
        "size": info.length,
        "content_type": info.headers.content_type.as_ref().map(FieldText::as_str),
        "last_modified": date(Some(info.last_modified), now),
        "metadata": metadata,
    })
}

fn container(entry: &ContainerEntry, now: Timestamp) -> Value {
    json!({ "name": entry.name.as_str(), "last_modified": date(entry.info.last_modified, now) })
}

/// Formats a date once its second has come, as in a header field.
fn date(date: Option<HttpDate>, now: Timestamp) -> Option<String> {
    date.filter(|date| date.has_come(now)).map(|date| date.to_string())
}

fn answer(head: &Parts, listing: &Value) -> Response<BlobBody> {
    let text = listing.to_string();
    let length = text.len();
    let body = if head.method == Method::HEAD { BlobBody::empty() } else { text.into() };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn parse(query: &str) -> Result<ListQuery, Problem> {
    let mut parsed = ListQuery { prefix: String::new(), after: None, limit: MAX_LIMIT, leases: false };
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.replace('+', " ");
        let value = name::decode(&value).map_err(|error| Problem::bad_request(error.to_string()))?;
        match name {
            "prefix" => parsed.prefix = value.into_owned(),
            "after" => parsed.after = Some(value.into_owned()),
            "limit" => parsed.limit = limit(&value)?,
            _ => return Err(Problem::bad_request("the parameters of a listing are prefix, after and limit")),
        }
    }
    Ok(parsed)
}

fn limit(text: &str) -> Result<usize, Problem> {
    match text.parse::<usize>() {
        Ok(limit @ 1..) => Ok(limit.min(MAX_LIMIT)),
        _ => Err(Problem::bad_request(format!("limit is a number from 1 to {MAX_LIMIT}"))),
    }
}
