//! `/-/leases`: the leases as JSON, and a way to break one.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use ifmatch_blob::BlobStore;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{LeaseRequest, Leased, Reading, StoreError, StoreErrorKind};
use ifmatch_core::lease::{BreakPeriod, Lease, LeaseAction};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use ifmatch_runtime::{Clock, SystemClock};
use serde::Deserialize;
use serde_json::json;
use url::form_urlencoded;

use super::list::{self, Place};
use super::view;
use crate::endpoints;
use crate::request_body::RequestBody;

/// Where the API begins.
pub(crate) const ROOT: &str = "/-/leases";

/// The most entries in a page, and the number of them unless the request says otherwise.
const MAX_LIMIT: usize = 1_000;
/// The longest body of a command, in bytes.
const MAX_BODY: usize = 1_024;

/// What can be done to a lease without its id.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase", tag = "action")]
enum Order {
    Break { period: Option<i64> },
}

/// Answers a request to a path that begins with [`ROOT`].
///
/// | request | answer |
/// |---|---|
/// | `GET /-/leases?prefix=&after=&limit=` | the leases, in pages |
/// | `GET /-/leases/{container}[/{blob…}]` | one |
/// | `POST /-/leases/{container}[/{blob…}]` `{"action":"break","period":10}` | 200: it is broken, or will be |
pub(crate) async fn answer<S: BlobStore>(store: &S, request: Request<RequestBody>) -> Response<Bytes> {
    let answered = match place(request.uri().path()) {
        Ok(None) => whole(store, &request).await,
        Ok(Some(place)) => one(store, place, request).await,
        Err(problem) => Err(problem),
    };
    answered.unwrap_or_else(|problem| problem.to_response())
}

async fn whole<S: BlobStore>(store: &S, request: &Request<RequestBody>) -> Result<Response<Bytes>, Problem> {
    if !is_read(request.method()) {
        return Err(not_allowed("GET, HEAD"));
    }
    let query = Query::parse(request.uri().query().unwrap_or_default())?;
    let page = list::page(store, &query.prefix, query.after, query.limit).await?;
    let now = SystemClock.now();
    let leases: Vec<_> = page.items.iter().map(|entry| view::of(&entry.place, Some(&entry.lease), now)).collect();
    Ok(endpoints::json(&json!({ "leases": leases, "next": page.next })))
}

async fn one<S: BlobStore>(store: &S, place: Place, request: Request<RequestBody>) -> Result<Response<Bytes>, Problem> {
    if is_read(request.method()) {
        let lease = find(store, &place).await?;
        return Ok(endpoints::json(&view::of(&place, lease.as_ref(), SystemClock.now())));
    }
    if request.method() != Method::POST {
        return Err(not_allowed("GET, HEAD, POST"));
    }
    let Order::Break { period } = order(request).await?;
    let too_long = || Problem::bad_request("period is a number of seconds from 0 to 60");
    let period = period.map(|seconds| BreakPeriod::from_seconds(seconds).ok_or_else(too_long)).transpose()?;
    let leased = end(store, &place, period).await?;
    tracing::info!(%place, "a lease was broken by the operator");
    Ok(endpoints::json(&view::of(&place, leased.receipt.lease.as_ref(), leased.receipt.at)))
}

async fn find<S: BlobStore>(store: &S, place: &Place) -> Result<Option<Lease>, Problem> {
    if let Some(blob) = path(place) {
        let opened = store.open(&blob, Reading::HEAD).await?;
        Ok(opened.ok_or_else(Problem::not_found)?.info.lease)
    } else {
        let container = store.container(&place.container).await?;
        Ok(container.ok_or_else(|| StoreError::from(StoreErrorKind::ContainerNotFound))?.lease)
    }
}

async fn end<S: BlobStore>(store: &S, place: &Place, period: Option<BreakPeriod>) -> Result<Leased, StoreError> {
    let action = LeaseAction::Break(period);
    let request = LeaseRequest { action, preconditions: Preconditions::default(), request: None };
    match path(place) {
        Some(blob) => store.lease(&blob, request).await,
        None => store.lease_container(&place.container, request).await,
    }
}

fn path(place: &Place) -> Option<BlobPath> {
    let (container, name) = (place.container.clone(), place.blob.clone()?);
    Some(BlobPath { container, name })
}

/// What a path below [`ROOT`] names; nothing if it is the root itself.
fn place(path: &str) -> Result<Option<Place>, Problem> {
    let invalid = |error: ifmatch_blob::name::InvalidName| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid-name").detail(error.to_string())
    };
    let path = path.strip_prefix(ROOT).unwrap_or_default();
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(None),
        // The name of a container has no character that is percent-encoded.
        container if !container.contains('/') => {
            Ok(Some(Place { container: ContainerName::new(container).map_err(invalid)?, blob: None }))
        }
        _ => {
            let BlobPath { container, name } = BlobPath::parse(path).map_err(invalid)?;
            Ok(Some(Place { container, blob: Some(name) }))
        }
    }
}

/// What is ordered. As JSON, and said to be: no web page can send that to another site without being asked first.
async fn order(request: Request<RequestBody>) -> Result<Order, Problem> {
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if media_type.split(';').next().unwrap_or_default().trim() != "application/json" {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json")
            .detail(r#"send Content-Type: application/json and {"action":"break"}"#));
    }
    let invalid = |error: String| {
        Problem::bad_request(format!(r#"the body must be like {{"action":"break","period":10}}: {error}"#))
    };
    let body =
        Limited::new(request.into_body(), MAX_BODY).collect().await.map_err(|error| invalid(error.to_string()))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| invalid(error.to_string()))
}

/// Which part of the listing is wanted.
struct Query {
    prefix: String,
    after: Option<Place>,
    limit: usize,
}

impl Query {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut parsed = Self { prefix: String::new(), after: None, limit: MAX_LIMIT };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "prefix" => parsed.prefix = value.into_owned(),
                "after" => {
                    let unknown = |_| Problem::bad_request("after is what next was in the page before");
                    parsed.after = Some(Place::new(&value).map_err(unknown)?);
                }
                "limit" => parsed.limit = limit(&value)?,
                _ => return Err(Problem::bad_request("the parameters are prefix, after and limit")),
            }
        }
        Ok(parsed)
    }
}

fn limit(text: &str) -> Result<usize, Problem> {
    match text.parse::<usize>() {
        Ok(limit @ 1..) => Ok(limit.min(MAX_LIMIT)),
        _ => Err(Problem::bad_request(format!("limit is a number from 1 to {MAX_LIMIT}"))),
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn not_allowed(allow: &'static str) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
        .detail("the method cannot be used here: see Allow")
        .header(ALLOW, HeaderValue::from_static(allow))
}
