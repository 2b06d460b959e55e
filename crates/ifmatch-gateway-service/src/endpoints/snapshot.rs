//! `/-/snapshot`: a consistent copy of the data folder, for backups of a gateway that goes on serving.

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, Response, StatusCode};
use ifmatch_blob_indexed::{IndexedStore, OpenError, OpenErrorKind, Snapshot};
use ifmatch_core::problem::Problem;
use serde_json::json;

use super::{answer_json, not_allowed};

/// Takes a snapshot for `PUT`, which replaces the previous one, and removes it for `DELETE`.
///
/// # Errors
/// 404 if there is none to remove, 405, 409 during another snapshot, 507 if the disk is full, or 500.
pub(super) async fn respond(
    folder: &IndexedStore,
    method: &Method,
) -> Result<Response<Bytes>, Problem> {
    match *method {
        Method::PUT => {
            let store = folder.clone();
            // A client that disconnects doesn't interrupt it.
            let taken = tokio::spawn(async move { store.snapshot().await }).await;
            let taken = taken
                .map_err(|error| failed(&error))?
                .map_err(|error| problem(&error));
            let Snapshot {
                folder,
                bodies,
                bytes,
            } = taken?;
            let snapshot =
                json!({ "folder": folder.display().to_string(), "bodies": bodies, "bytes": bytes });
            Ok(answer_json(StatusCode::CREATED, &snapshot))
        }
        Method::DELETE => match folder.remove_snapshot().await {
            Ok(true) => Ok(answer_json(StatusCode::OK, &json!({ "removed": true }))),
            Ok(false) => Err(Problem::not_found().detail("there is no snapshot. PUT takes one")),
            Err(error) => Err(problem(&error)),
        },
        _ => Err(not_allowed(
            "PUT, DELETE",
            "PUT takes a snapshot, and DELETE removes it",
        )),
    }
}

/// Returns the problem of a snapshot that couldn't be taken or removed.
fn problem(error: &OpenError) -> Problem {
    match error.kind() {
        OpenErrorKind::InUse => Problem::new(StatusCode::CONFLICT, "snapshot-in-progress")
            .detail("another snapshot is in progress. Retry later")
            .header(RETRY_AFTER, HeaderValue::from_static("10")),
        OpenErrorKind::Full => Problem::insufficient_storage(),
        _ => failed(error),
    }
}

/// Logs an unexpected error, and returns 500.
fn failed(error: &dyn std::fmt::Display) -> Problem {
    tracing::error!(%error, "the snapshot failed");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "snapshot-failed")
        .detail("the snapshot failed. See the gateway's log")
}
