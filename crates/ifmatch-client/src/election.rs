//! Leader election: a lock, held by one candidate for each term.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::lock::LockRecord;
use ifmatch_runtime::task;
use tokio::sync::watch;

use crate::client::Client;
use crate::document::{Document, Versioned};
use crate::error::{Error, ErrorKind};
use crate::grant::Grant;
use crate::lock::Lock;

/// A leader election.
///
/// ```
/// use ifmatch_client::{Client, Memory};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let election = Client::new(Memory::default()).election("leaders/mail").name("host 1");
/// let term = election.run(|term| async move { term.fence() }).await?;
/// assert!(term > 0);
/// # Ok::<(), ifmatch_client::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

/// The leader of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The name of the candidate.
    pub name: String,
    /// The number of the term, the fencing token of the leader.
    pub term: u64,
}

impl Client {
    /// Returns the election at a key.
    pub fn election(&self, key: impl Into<Arc<str>>) -> Election {
        Election {
            lock: self.lock(key),
        }
    }
}

impl Election {
    /// Sets this candidate's name. Defaults to its process id.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.lock = self.lock.holder(name);
        self
    }

    /// Sets how long a term lasts without renewal. Defaults to 30 seconds. If the leader crashes, the others wait this
    /// long.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Waits to become the leader, then runs the work. If the term is lost, drops the work and becomes a candidate
    /// again. Returns the result once the work has finished.
    ///
    /// # Errors
    /// Same as [`Lock::acquire`].
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let election = Client::new(Memory::default()).election("leaders/mail");
    /// assert_eq!(election.run(|_term| async { "sent" }).await?, "sent");
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn run<T, F: Future<Output = T>>(
        &self,
        mut work: impl FnMut(Grant) -> F,
    ) -> Result<T, Error> {
        loop {
            match self.lock.with(&mut work).await {
                Err(error) if *error.kind() == ErrorKind::Lost => {}
                done => return done,
            }
        }
    }

    /// Watches who the leader is. A crashed leader is shown until the next one is elected.
    ///
    /// # Errors
    /// Same as [`Document::get`].
    pub async fn observe(&self) -> Result<watch::Receiver<Option<Leader>>, Error> {
        let record: Document<LockRecord> = self.lock.record();
        let mut changes = record.watch().await?;
        let leader = |record: Option<&Arc<Versioned<LockRecord>>>| {
            let record = &record?.value;
            record.held.then(|| Leader {
                name: record.holder.clone(),
                term: record.fence,
            })
        };
        let shown = watch::Sender::new(leader(changes.borrow_and_update().as_ref()));
        let receiver = shown.subscribe();
        drop(task::detach(async move {
            let closed = std::pin::pin!(shown.closed());
            let follow = std::pin::pin!(async {
                while changes.changed().await.is_ok() {
                    let now = leader(changes.borrow_and_update().as_ref());
                    shown.send_if_modified(|leader| {
                        let differs = *leader != now;
                        *leader = now;
                        differs
                    });
                }
            });
            futures_util::future::select(closed, follow).await;
        }));
        Ok(receiver)
    }
}
