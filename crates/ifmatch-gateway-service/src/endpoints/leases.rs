//! `/-/leases`: lists leases as JSON, and breaks them.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use ifmatch_blob::BlobStore;
use ifmatch_blob::leases::LeaseTarget;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{LeaseRequest, Leased, Reading, StoreError, StoreErrorKind};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseConflict, LeaseReceipt, SeenLease};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use ifmatch_core::record::Revision;
use ifmatch_gateway_config::endpoint_paths::LEASES;
use ifmatch_http_server::RequestBody;
use ifmatch_runtime::{Clock, SystemClock};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{
    answer_json, answer_listing, begin_listing, client, is_read, not_allowed, parse_limit,
};
use crate::conflicts::{Conflict, ConflictLog};
use crate::leases::listing::{self, lease_json};
use crate::metrics::seconds;
use crate::state::AppState;

/// Maximum number of entries in a page, and the default.
const MAX_LIMIT: usize = 1_000;
/// Maximum size of a command, in bytes.
const MAX_BODY: usize = 1_024;

/// An operation on a lease that needs no lease id.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase", tag = "action")]
enum LeaseCommand {
    Break {
        /// Seconds for which the broken lease still locks.
        period: Option<i64>,
        /// The token of the lease to break. Another lease stays.
        token: Option<u64>,
    },
}

/// Returns `true` for [`LEASES`] and the paths below it.
pub(super) fn is_below_root(path: &str) -> bool {
    path.strip_prefix(LEASES)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Responds to a request to [`LEASES`] or a path below it.
///
/// | request | response |
/// |---|---|
/// | `GET /-/leases?prefix=&after=&limit=` | all leases, in pages |
/// | `GET /-/leases/{container}[/{blob…}]` | one lease |
/// | `POST /-/leases/{container}[/{blob…}]` `{"action":"break","period":10,"token":…}` | 200: the lease is broken, or breaking |
///
/// With a lease are the clients that it has kept from their work in the last ten minutes: `waiting`.
pub(super) async fn respond(
    store: &dyn BlobStore,
    state: &AppState,
    request: Request<RequestBody>,
) -> Response<Bytes> {
    let response = match target(request.uri().path()) {
        Ok(None) => list(store, state, &request).await,
        Ok(Some(target)) => one(store, state, target, request).await,
        Err(problem) => Err(problem),
    };
    response.unwrap_or_else(|problem| problem.to_response())
}

/// Responds with a page of leases.
async fn list(
    store: &dyn BlobStore,
    state: &AppState,
    request: &Request<RequestBody>,
) -> Result<Response<Bytes>, Problem> {
    if !is_read(request.method()) {
        return Err(not_allowed(
            "GET, HEAD",
            "GET lists leases. POST /-/leases/CONTAINER/BLOB breaks one",
        ));
    }
    let query = LeaseQuery::parse(request.uri().query().unwrap_or_default())?;
    let mut found = begin_listing(state, request)?;
    let page = listing::page(store, &query.prefix, query.after, query.limit, &mut found).await?;
    let losers = Losers::of(&state.conflicts);
    let leases: Vec<_> = page
        .items
        .iter()
        .map(|entry| losers.describe(&entry.target, Some(&entry.lease)))
        .collect();
    answer_listing(
        state.documents.begin(client(request)),
        &json!({ "leases": leases, "next": page.next }),
    )
}

/// Responds with the lease of a target, or breaks it.
async fn one(
    store: &dyn BlobStore,
    state: &AppState,
    target: LeaseTarget,
    request: Request<RequestBody>,
) -> Result<Response<Bytes>, Problem> {
    if is_read(request.method()) {
        let lease = find(store, &target).await?;
        let described = Losers::of(&state.conflicts).describe(&target, lease.as_ref());
        return answer_listing(state.documents.begin(client(&request)), &described);
    }
    if request.method() != Method::POST {
        return Err(not_allowed(
            "GET, HEAD, POST",
            r#"GET shows the lease. POST {"action":"break"} breaks it"#,
        ));
    }
    let LeaseCommand::Break { period, token } = command(request).await?;
    let too_long = || Problem::bad_request("the period isn't a number of seconds from 0 to 60");
    let period = period
        .map(|seconds| BreakPeriod::from_seconds(seconds).ok_or_else(too_long))
        .transpose()?;
    let action = LeaseAction::Break {
        period,
        token: token.map(Revision::new),
    };
    let leased = lease(store, &target, action)
        .await
        .map_err(|error| match error.kind() {
            StoreErrorKind::LeaseConflict(conflict @ LeaseConflict::TokenMismatch) => {
                Problem::new(StatusCode::CONFLICT, "another-lease").detail(conflict.to_string())
            }
            _ => error.into(),
        })?;
    tracing::info!(path = %target, "an operator broke a lease");
    let LeaseReceipt { lease, at } = leased.receipt;
    let seen = lease.map(|lease| SeenLease { lease, at });
    Ok(answer_json(
        StatusCode::OK,
        &lease_json(&target, seen.as_ref()),
    ))
}

/// The clients that leases have kept from their work lately.
struct Losers(Vec<Conflict>);

impl Losers {
    /// Returns those of the last ten minutes.
    fn of(conflicts: &ConflictLog) -> Self {
        let now = SystemClock.wall();
        Self(conflicts.recent(|conflict| conflict.by_lease && conflict.is_recent(now)))
    }

    /// Describes a lease as JSON, with the clients that wait for it.
    fn describe(&self, target: &LeaseTarget, lease: Option<&SeenLease>) -> Value {
        let mut described = lease_json(target, lease);
        described["ends"] = lease
            .filter(|lease| lease.state().is_locked())
            .and_then(ends)
            .into();
        let mut waiting: BTreeMap<_, (u32, f64)> = BTreeMap::new();
        let is_locked = lease.is_some_and(|lease| lease.state().is_locked());
        for conflict in self
            .0
            .iter()
            .filter(|conflict| is_locked && is_of(conflict, target))
        {
            let (count, last) = waiting
                .entry((conflict.client, &conflict.user_agent))
                .or_default();
            *count += 1;
            *last = last.max(conflict.time);
        }
        let describe = |((client, user_agent), (count, last))| json!({ "client": client, "user_agent": user_agent, "count": count, "last": last });
        described["waiting"] = waiting.into_iter().map(describe).collect();
        described
    }
}

/// Returns when a lease stops locking, in seconds since 1970 by the time of day, unless it has no end.
fn ends(seen: &SeenLease) -> Option<f64> {
    let left = seen.at.until(seen.lease.end()?);
    Some(seconds(SystemClock.wall()) + left.as_secs_f64())
}

/// Returns `true` if a request was for this target. In the Azure dialect, the path may begin with the account, which is part of
/// the container's name unless it is the first one.
fn is_of(conflict: &Conflict, target: &LeaseTarget) -> bool {
    let path = percent_decode_str(conflict.path.0.trim_start_matches('/')).decode_utf8_lossy();
    let target = target.to_string();
    let in_account = || {
        path.split_once('/').is_some_and(|(account, rest)| {
            rest == target
                || target
                    .strip_prefix(account)
                    .and_then(|rest| rest.strip_prefix('.'))
                    == Some(rest)
        })
    };
    path == target || conflict.credentials.starts_with("shared") && in_account()
}

/// Reads the lease of a target.
async fn find(store: &dyn BlobStore, target: &LeaseTarget) -> Result<Option<SeenLease>, Problem> {
    if let Some(blob) = blob_path(target) {
        let opened = store.open(&blob, Reading::HEAD).await?;
        Ok(opened
            .ok_or_else(|| StoreError::from(StoreErrorKind::NotFound))?
            .info
            .lease)
    } else {
        let container = store.container(&target.container).await?;
        Ok(container
            .ok_or_else(|| StoreError::from(StoreErrorKind::ContainerNotFound))?
            .lease)
    }
}

/// Carries out an operation on the lease of a target.
async fn lease(
    store: &dyn BlobStore,
    target: &LeaseTarget,
    action: LeaseAction,
) -> Result<Leased, StoreError> {
    let request = LeaseRequest {
        action,
        preconditions: Preconditions::default(),
        request: None,
    };
    match blob_path(target) {
        Some(blob) => store.lease(&blob, request).await,
        None => store.lease_container(&target.container, request).await,
    }
}

/// Returns the path of a blob, or `None` for a container.
fn blob_path(target: &LeaseTarget) -> Option<BlobPath> {
    let (container, name) = (target.container.clone(), target.blob.clone()?);
    Some(BlobPath { container, name })
}

/// Parses a path. Returns `None` for [`LEASES`] itself.
fn target(path: &str) -> Result<Option<LeaseTarget>, Problem> {
    let invalid = |error: ifmatch_blob::name::InvalidName| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid-name").detail(error.to_string())
    };
    let path = path.strip_prefix(LEASES).unwrap_or_default();
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(None),
        // Container names contain no characters that are percent-encoded.
        container if !container.contains('/') => Ok(Some(LeaseTarget {
            container: ContainerName::new(container).map_err(invalid)?,
            blob: None,
        })),
        _ => {
            let BlobPath { container, name } = BlobPath::parse(path).map_err(invalid)?;
            Ok(Some(LeaseTarget {
                container,
                blob: Some(name),
            }))
        }
    }
}

/// Reads a command, which must be declared as JSON: web pages can't send that to other sites without a CORS preflight.
async fn command(request: Request<RequestBody>) -> Result<LeaseCommand, Problem> {
    let media_type = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if media_type.split(';').next().unwrap_or_default().trim() != "application/json" {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json")
            .detail(r#"send Content-Type: application/json and {"action":"break"}"#));
    }
    let invalid = |error: String| {
        Problem::bad_request(format!(
            r#"send {{"action":"break","period":10}} ({error})"#
        ))
    };
    let body = Limited::new(request.into_body(), MAX_BODY)
        .collect()
        .await
        .map_err(|error| invalid(error.to_string()))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| invalid(error.to_string()))
}

/// Query of a listing.
struct LeaseQuery {
    prefix: String,
    after: Option<LeaseTarget>,
    limit: usize,
}

impl LeaseQuery {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut parsed = Self {
            prefix: String::new(),
            after: None,
            limit: MAX_LIMIT,
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "prefix" => parsed.prefix = value.into_owned(),
                "after" => {
                    let unknown = |_| {
                        Problem::bad_request(
                            "invalid after. Send the previous page's value of next",
                        )
                    };
                    parsed.after = Some(LeaseTarget::new(&value).map_err(unknown)?);
                }
                "limit" => parsed.limit = parse_limit(&value, MAX_LIMIT)?,
                _ => {
                    return Err(Problem::bad_request(
                        "unknown parameter. Use prefix, after or limit",
                    ));
                }
            }
        }
        Ok(parsed)
    }
}
