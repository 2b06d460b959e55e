//! `/-/health` and `/-/ready`: for load balancers. They need no token.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use ifmatch_blob::BlobStore;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register};
use ifmatch_runtime::{Clock, SystemClock};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::answer_json;
use crate::gateway::state::AppState;
use crate::leases::metrics::MeteredStore;
use crate::purges::Following;

/// Time limit for the store.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which a response of the store is reused.
const REUSE: Duration = Duration::from_secs(1);
/// The container that is looked up. It needn't exist.
const CONTAINER: &str = "ifmatch-ready";
/// The key of a record that is never changed.
const KEY: &str = "i/ready";

/// The last response of the store. One request asks the store at a time; others wait for its response.
#[derive(Debug, Default)]
pub(crate) struct StoreReadiness(Mutex<Option<(Result<(), FailedComponent>, Timestamp)>>);

/// A component that doesn't work, and why.
#[derive(Clone, Debug)]
pub(crate) struct FailedComponent {
    /// `register` or `store`.
    pub(crate) component: &'static str,
    pub(crate) reason: String,
    /// Time of day of the first check that found it so.
    pub(crate) since: Timestamp,
}

impl StoreReadiness {
    /// Checks that the register, or the index of a folder, would accept a change, and that the store responds, which
    /// needs its register.
    async fn check(&self, blobs: &MeteredStore, register: Option<&dyn Register>) -> Result<(), FailedComponent> {
        let mut last = self.0.lock().await;
        if let Some((checked, at)) = &*last
            && SystemClock.now() < at.saturating_add(REUSE)
        {
            return checked.clone();
        }
        let checked = async {
            accepts_changes(register).await.map_err(|reason| ("register", reason))?;
            answers(blobs).await.map_err(|reason| ("store", reason))
        };
        let checked = checked.await.map_err(|(component, reason)| {
            let before = last.as_ref().and_then(|(checked, _)| checked.as_ref().err());
            let before = before.filter(|down| down.component == component).map(|down| down.since);
            FailedComponent { component, reason, since: before.unwrap_or_else(|| SystemClock.wall()) }
        });
        if let Err(FailedComponent { reason, .. }) = &checked {
            tracing::warn!("not ready: {reason}");
        }
        *last = Some((checked.clone(), SystemClock.now()));
        checked
    }
}

async fn answers(blobs: &MeteredStore) -> Result<(), String> {
    let container = ContainerName::new(CONTAINER).map_err(|error| error.to_string())?;
    match timeout(PATIENCE, blobs.container(&container)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.reason()),
        Err(_) => {
            Err(format!("the store didn't respond within {} s. Check its server and the network.", PATIENCE.as_secs()))
        }
    }
}

/// Checks that the register would accept a change. Its swaps expect a revision that no record has, so they change nothing
/// and need no sync; an engine refuses them all the same if it is read-only, or if the user lacks a right.
async fn accepts_changes(register: Option<&dyn Register>) -> Result<(), String> {
    let (Some(register), Ok(key)) = (register, Key::new(KEY)) else { return Ok(()) };
    let (record, never) = (Record::forgotten(Revision::new(2)), Revision::new(1));
    let swaps = async {
        // Creates the record at the first time.
        register.compare_and_swap(&key, Revision::NONE, Some(&record)).await?;
        register.compare_and_swap(&key, never, Some(&record)).await?;
        register.compare_and_swap(&key, never, None).await
    };
    match timeout(PATIENCE, swaps).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("the register refuses changes: {}", error.reason())),
        Err(_) => {
            Err(format!("the register didn't accept a change within {} s. Check its server.", PATIENCE.as_secs()))
        }
    }
}

/// Whether requests can be served.
pub(super) enum Ready {
    /// They can.
    Yes,
    /// The gateway is about to stop.
    Stopping,
    /// The store or its register doesn't respond, or refuses changes, for this reason.
    Unavailable(FailedComponent),
}

/// Checks whether requests can be served.
pub(super) async fn check(state: &AppState) -> Ready {
    match &state.blobs {
        _ if state.is_stopping() => Ready::Stopping,
        Some(blobs) => {
            let index = blobs.folder.as_ref().map(IndexedStore::index);
            match state.readiness.check(&blobs.store, blobs.register.as_deref().or(index)).await {
                Ok(()) => Ready::Yes,
                Err(down) => Ready::Unavailable(down),
            }
        }
        None => Ready::Yes,
    }
}

/// Returns what an operator should know although requests can be served.
pub(super) fn warning(state: &AppState) -> Option<String> {
    let is_cut_off = state.following().is_some_and(Following::is_cut_off);
    let purges = is_cut_off.then(|| {
        "the purge log is unreadable, so stored responses are revalidated before use. Check the server of --purge-register".to_owned()
    });
    let warnings: Vec<String> = state.certificate_problem().into_iter().chain(purges).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

/// Returns 200 if requests can be served, or 503 if the store doesn't respond, its register doesn't respond or
/// refuses changes, or the gateway is about to stop. An expired certificate is a warning: others have the same, so taking this
/// gateway out wouldn't help. Nor does it if the purge log can't be read. The reason is in `/-/overview`, which needs a token.
pub(super) async fn respond(state: &AppState) -> Response<Bytes> {
    let status = match check(state).await {
        Ready::Stopping => "stopping",
        Ready::Unavailable(_) => "unavailable",
        Ready::Yes => {
            let body = match warning(state) {
                None => json!({ "status": "ready" }),
                Some(problem) => json!({ "status": "ready", "warning": problem }),
            };
            return answer_json(StatusCode::OK, &body);
        }
    };
    let mut response = answer_json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": status }));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Returns 200, or 503 once the gateway is about to stop.
pub(super) fn respond_health(state: &AppState) -> Response<Bytes> {
    if state.is_stopping() {
        answer_json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "stopping" }))
    } else {
        answer_json(StatusCode::OK, &json!({ "status": "ok" }))
    }
}
