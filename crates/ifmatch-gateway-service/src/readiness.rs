//! Whether the store and its register work, as their last responses tell.

use std::time::Duration;

use ifmatch_blob::BlobStore;
use ifmatch_blob::name::ContainerName;
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register};
use ifmatch_runtime::{Clock, SystemClock};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::metrics::leases::MeteredStore;

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
    /// Checks that the register, or the index of a folder, would accept a change, and that the store responds, which needs its register.
    ///
    /// # Errors
    /// Names the first component that doesn't work.
    pub(crate) async fn check(
        &self,
        blobs: &MeteredStore,
        register: Option<&dyn Register>,
    ) -> Result<(), FailedComponent> {
        let mut last = self.0.lock().await;
        if let Some((checked, at)) = &*last
            && SystemClock.now() < at.saturating_add(REUSE)
        {
            return checked.clone();
        }
        let checked = async {
            accepts_changes(register)
                .await
                .map_err(|reason| ("register", reason))?;
            answers(blobs).await.map_err(|reason| ("store", reason))
        };
        let checked = checked.await.map_err(|(component, reason)| {
            let before = last
                .as_ref()
                .and_then(|(checked, _)| checked.as_ref().err());
            let before = before
                .filter(|down| down.component == component)
                .map(|down| down.since);
            FailedComponent {
                component,
                reason,
                since: before.unwrap_or_else(|| SystemClock.wall()),
            }
        });
        if let Err(FailedComponent { reason, .. }) = &checked {
            tracing::warn!("not ready: {reason}");
        }
        *last = Some((checked.clone(), SystemClock.now()));
        checked
    }
}

/// Checks that the store responds.
async fn answers(blobs: &MeteredStore) -> Result<(), String> {
    let container = ContainerName::new(CONTAINER).map_err(|error| error.to_string())?;
    match timeout(PATIENCE, blobs.container(&container)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.reason()),
        Err(_) => Err(format!(
            "the store didn't respond within {} s. Check its server and the network.",
            PATIENCE.as_secs()
        )),
    }
}

/// Checks that the register would accept a change. Its swaps expect a revision that no record has, so they change nothing
/// and need no sync; an engine refuses them all the same if it is read-only, or if the user lacks a right.
async fn accepts_changes(register: Option<&dyn Register>) -> Result<(), String> {
    let (Some(register), Ok(key)) = (register, Key::new(KEY)) else {
        return Ok(());
    };
    let (record, never) = (Record::forgotten(Revision::new(2)), Revision::new(1));
    let swaps = async {
        // Creates the record the first time.
        register
            .compare_and_swap(&key, Revision::NONE, Some(&record))
            .await?;
        register
            .compare_and_swap(&key, never, Some(&record))
            .await?;
        register.compare_and_swap(&key, never, None).await
    };
    match timeout(PATIENCE, swaps).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("the register refuses changes: {}", error.reason())),
        Err(_) => Err(format!(
            "the register didn't accept a change within {} s. Check its server.",
            PATIENCE.as_secs()
        )),
    }
}
