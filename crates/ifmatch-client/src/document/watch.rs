//! Watching a document: long polls where the server grants them, polls otherwise.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use ifmatch_runtime::{Clock, jittered, task};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch::{Receiver, Sender};

use super::{Document, LoadedDocument, Versioned};
use crate::error::Error;
use crate::pause::Backoff;

/// Time to ask the server to wait for a change.
pub(crate) const LONG_POLL: Duration = Duration::from_secs(25);
/// Interval between polls of a server that doesn't wait.
const INTERVAL: Duration = Duration::from_secs(1);

impl<T: DeserializeOwned + Serialize + Send + Sync + 'static> Document<T> {
    /// Watches the document, which is `None` while it doesn't exist. A version that's replaced at once may be skipped.
    ///
    /// While the server doesn't respond, or the content isn't a `T`, the last version stays. The watch ends when all
    /// receivers are dropped.
    ///
    /// # Errors
    /// Same as [`get`](Self::get), for the first version.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let limit = Client::new(Memory::default()).json::<u32>("limit");
    /// let mut changes = limit.watch().await?;
    /// assert!(changes.borrow().is_none());
    /// limit.update(|limit| *limit = 5).await?;
    /// changes.changed().await.unwrap();
    /// assert_eq!(changes.borrow().as_ref().unwrap().value, 5);
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn watch(&self) -> Result<Receiver<Option<Arc<Versioned<T>>>>, Error> {
        // A memory of its own: a version that another clone reads must not be taken for one that was reported.
        let own = Self::new(self.raw.client.clone(), Arc::clone(&self.raw.key));
        let sender = Sender::new(own.get().await?.map(Arc::new));
        let receiver = sender.subscribe();
        // It ends with the receivers.
        drop(task::detach(own.follow(sender)));
        Ok(receiver)
    }

    async fn follow(self, changes: Sender<Option<Arc<Versioned<T>>>>) {
        let mut backoff = Backoff::default();
        loop {
            let poll = pin!(self.poll(&changes));
            let closed = pin!(changes.closed());
            let pause = match select(poll, closed).await {
                Either::Right(_) => return,
                Either::Left((Ok(waited), _)) => {
                    backoff = Backoff::default();
                    if waited {
                        Duration::ZERO
                    } else {
                        jittered(INTERVAL)
                    }
                }
                Either::Left((Err(_), _)) => INTERVAL + backoff.next(),
            };
            let pause = pin!(self.raw.client.clock().sleep(pause));
            if let Either::Right(_) = select(pause, pin!(changes.closed())).await {
                return;
            }
        }
    }

    /// Reads once, and reports a change. Returns `true` if the server has waited, so the next poll needs no pause.
    async fn poll(&self, changes: &Sender<Option<Arc<Versioned<T>>>>) -> Result<bool, Error> {
        let last = self.last();
        let known = last.as_ref().and_then(|last| last.version.as_ref());
        let loaded = self.raw.read(known, Some(LONG_POLL)).await?;
        let waited = match loaded {
            LoadedDocument::Unchanged(waited) => return Ok(waited),
            LoadedDocument::Found(_, waited) => waited,
            LoadedDocument::Absent => false,
        };
        let current = self.adopt(loaded, None);
        let value = current
            .map(|snapshot| self.versioned(&snapshot))
            .transpose()?
            .map(Arc::new);
        changes.send_if_modified(|shown| {
            let differs = shown.as_ref().map(|shown| &shown.version)
                != value.as_ref().map(|value| &value.version);
            *shown = value;
            differs
        });
        Ok(waited)
    }
}
