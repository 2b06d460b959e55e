//! The gateway's own endpoints: under `/-/`, and purges of a URL. To add one, write a module and add it to `route`.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use ifmatch_blob::dialect::Client;
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_blob::name::is_server_path;
use ifmatch_blob::store::StoreError;
use ifmatch_core::problem::Problem;
use ifmatch_gateway_config::access::Denied;
use ifmatch_gateway_config::endpoint_paths::{
    CACHE, CONFLICTS, HEALTH, LEASES, METRICS, OVERVIEW, READY, SNAPSHOT,
};
use ifmatch_http_server::RequestBody;
use serde::Serialize;

use crate::state::{AppState, ServedBlobs};

pub(crate) mod cache;
pub(crate) mod conflicts;
pub(crate) mod overview;

mod leases;
mod ready;
mod snapshot;

/// The endpoint that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// One below `/-/`.
    Path,
    /// A purge of the URL that the request names, by a method of its own, from the cache of a proxy.
    Purge,
}

impl Endpoint {
    /// Returns the endpoint of a request, if it is for one.
    pub(crate) fn of(state: &AppState, method: &Method, path: &str) -> Option<Self> {
        let is_purge =
            state.upstreams.is_some() && state.cache.is_some() && cache::is_purge(method);
        is_purge
            .then_some(Self::Purge)
            .or_else(|| is_server_path(path).then_some(Self::Path))
    }

    /// Responds to a request for this endpoint.
    pub(crate) async fn respond(
        self,
        state: &AppState,
        request: Request<RequestBody>,
    ) -> Response<Bytes> {
        let response = match (self, &state.cache) {
            (Self::Purge, Some(cache)) => match check_access(state, &request) {
                Ok(()) => cache::purge_target(&cache.handle, &cache.purges, request).await,
                Err(denied) => Err(denied),
            },
            _ => route(state, request).await,
        };
        response.unwrap_or_else(|problem| problem.to_response())
    }
}

/// Responds by the endpoint at the path of a request.
async fn route(
    state: &AppState,
    request: Request<RequestBody>,
) -> Result<Response<Bytes>, Problem> {
    let path = request.uri().path();
    match (path, &state.blobs, &state.cache) {
        (HEALTH, ..) => {
            check_read(&request)?;
            Ok(ready::respond_health(state))
        }
        (READY, ..) => {
            check_read(&request)?;
            Ok(ready::respond(state).await)
        }
        (METRICS, ..) => {
            check_read(&request)?;
            check_access(state, &request)?;
            Ok(overview::respond_metrics(state))
        }
        (OVERVIEW, ..) => {
            check_read(&request)?;
            check_access(state, &request)?;
            Ok(overview::respond(state).await)
        }
        (CONFLICTS, ..) => {
            check_read(&request)?;
            check_access(state, &request)?;
            conflicts::respond(state, &request)
        }
        (_, Some(blobs), _) if leases::is_below_root(path) => {
            check_access(state, &request)?;
            Ok(leases::respond(&blobs.store, state, request).await)
        }
        (
            SNAPSHOT,
            Some(ServedBlobs {
                folder: Some(folder),
                ..
            }),
            _,
        ) => {
            check_access(state, &request)?;
            snapshot::respond(folder, request.method()).await
        }
        (CACHE, _, Some(cache)) => {
            check_access(state, &request)?;
            let (method, uri, headers) = (request.method(), request.uri(), request.headers());
            let answer = cache::respond(&cache.handle, &cache.purges, method, uri, headers).await?;
            // What a purge did is always said.
            if method.is_safe() {
                hold(state.documents.begin(client(&request)), answer)
            } else {
                Ok(answer)
            }
        }
        _ => {
            let paths = served(state).join(", ");
            Err(Problem::not_found().detail(format!("no such endpoint. The endpoints are {paths}")))
        }
    }
}

/// Returns the paths of the endpoints that this gateway has.
fn served(state: &AppState) -> Vec<&'static str> {
    let mut paths = vec![HEALTH, READY, METRICS, OVERVIEW, CONFLICTS];
    if let Some(blobs) = &state.blobs {
        paths.extend(blobs.folder.is_some().then_some(SNAPSHOT));
        paths.push(LEASES);
    }
    paths.extend(state.cache.is_some().then_some(CACHE));
    paths
}

/// Checks that a request to an endpoint that changes nothing is a GET or HEAD.
fn check_read<B>(request: &Request<B>) -> Result<(), Problem> {
    if is_read(request.method()) {
        return Ok(());
    }
    Err(not_allowed(
        "GET, HEAD",
        "this endpoint is read-only: use GET",
    ))
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns 405, with the methods that are allowed (RFC 9110 §15.5.6).
fn not_allowed(allow: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
        .detail(detail)
        .header(header::ALLOW, HeaderValue::from_static(allow))
}

/// Parses the length of a list that a query asks for. Longer ones are cut to `longest`.
fn parse_limit(text: &str, longest: usize) -> Result<usize, Problem> {
    match text.parse::<usize>() {
        Ok(limit @ 1..) => Ok(limit.min(longest)),
        _ => Err(Problem::bad_request(format!(
            "limit isn't a number from 1 to {longest}"
        ))),
    }
}

/// Checks that a request has a token for what it does.
fn check_access<B>(state: &AppState, request: &Request<B>) -> Result<(), Problem> {
    state
        .access
        .load()
        .check_token(request.method(), request.headers())
        .map_err(Denied::to_problem)
}

/// Begins to account for a listing, which is refused if its client has too many that are still to be sent.
fn begin_listing<B>(state: &AppState, request: &Request<B>) -> Result<DocumentMemory, Problem> {
    Ok(state
        .documents
        .begin_answer(client(request))
        .map_err(StoreError::from)?)
}

/// Returns the client whose share of the memory a listing takes.
fn client<B>(request: &Request<B>) -> Option<Client> {
    request.extensions().get().copied()
}

/// Returns a listing as JSON, which occupies its memory until it is sent.
fn answer_listing(
    memory: DocumentMemory,
    value: &impl Serialize,
) -> Result<Response<Bytes>, Problem> {
    hold(memory, answer_json(StatusCode::OK, value))
}

/// Lets a response occupy its memory until it is sent.
fn hold(mut memory: DocumentMemory, answer: Response<Bytes>) -> Result<Response<Bytes>, Problem> {
    memory.grow(answer.body().len()).map_err(StoreError::from)?;
    Ok(answer.map(|text| memory.hold(text)))
}

/// Returns a JSON response that must not be stored.
fn answer_json(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    // Maps have texts as keys, and no number is infinite, so nothing fails.
    answer_text(
        status,
        "application/json",
        serde_json::to_vec(value).unwrap_or_default().into(),
    )
}

/// Returns a text response that must not be stored.
fn answer_text(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
