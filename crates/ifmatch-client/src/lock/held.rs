//! A held lock: its renewal, the signal of its loss, and its release.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lock::{self, LockRecord};
use ifmatch_runtime::Clock;
use tokio::sync::{oneshot, watch};

use super::json;
use crate::document::{DocumentSnapshot, LoadedDocument, RawDocument, RetryPace, WriteOutcome};
use crate::error::Error;
use crate::grant::{Grant, GrantState};
use crate::pause::{Backoff, sleep_until};

/// Time limit of a release.
const RELEASE: Duration = Duration::from_secs(10);

/// A held lock, renewed until it is released or dropped.
///
/// It is a [`Grant`]. Dropping it releases the lock in the background, if the runtime is still running.
#[derive(Debug)]
pub struct Held {
    grant: Grant,
    release: oneshot::Sender<oneshot::Sender<Result<(), Error>>>,
}

impl Held {
    /// `sent` is the time before the acquisition was sent.
    pub(super) fn new(
        raw: RawDocument,
        snapshot: DocumentSnapshot,
        record: LockRecord,
        id: String,
        sent: Timestamp,
    ) -> Self {
        let clock = raw.client.clock().clone();
        let deadline = lock::deadline(sent, record.ttl());
        let (grant, state) = Grant::new(record.fence, id, clock.clone(), deadline);
        let (release, order) = oneshot::channel();
        let keeper = Keeper {
            raw,
            clock,
            snapshot,
            record,
            sent,
            state,
        };
        let client = keeper.raw.client.clone();
        client.detach(keeper.run(order));
        Self { grant, release }
    }

    /// Returns the right to work under the lock, which can be cloned.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Releases the lock. All its grants end first.
    ///
    /// # Errors
    /// Fails if the server didn't confirm it. The lock then expires.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let lock = Client::new(Memory::default()).lock("a");
    /// lock.acquire().await?.release().await?;
    /// assert!(lock.try_acquire().await?.is_some());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        let (tell, told) = oneshot::channel();
        let ended = || Error::unknown("the runtime has ended");
        self.release.send(tell).map_err(|_| ended())?;
        told.await.map_err(|_| ended())?
    }
}

impl std::ops::Deref for Held {
    type Target = Grant;

    fn deref(&self) -> &Grant {
        &self.grant
    }
}

/// The task that renews and releases a lock.
struct Keeper {
    raw: RawDocument,
    clock: Arc<dyn Clock>,
    snapshot: DocumentSnapshot,
    record: LockRecord,
    sent: Timestamp,
    state: watch::Sender<GrantState>,
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Kept,
    /// Another client has written the record.
    Taken,
    /// The deadline has passed without a response.
    Late,
}

impl Keeper {
    async fn run(mut self, mut order: oneshot::Receiver<oneshot::Sender<Result<(), Error>>>) {
        let mut renewal = Renewal::Kept;
        let order = loop {
            if renewal != Renewal::Kept {
                self.end();
                break order.await.ok();
            }
            let next = lock::renewal(self.sent, self.record.ttl());
            let sleep = self.clock.clone();
            if let Either::Left((order, _)) =
                select(&mut order, pin!(sleep_until(&sleep, next))).await
            {
                break order.ok();
            }
            // The renewal may take effect after it was abandoned for a release, which then finds its version.
            renewal = match select(&mut order, pin!(self.renew())).await {
                Either::Left((order, _)) => break order.ok(),
                Either::Right((renewal, _)) => renewal,
            };
        };
        self.end();
        let released = if renewal == Renewal::Taken {
            Ok(())
        } else {
            self.release().await
        };
        if let Some(tell) = order {
            // The caller may have gone.
            let _ = tell.send(released);
        }
    }

    /// Ends all grants.
    fn end(&self) {
        self.state.send_modify(|state| state.ended = true);
    }

    /// Writes the record again. Only a definite response or the deadline ends the attempts.
    async fn renew(&mut self) -> Renewal {
        let deadline = lock::deadline(self.sent, self.record.ttl());
        let mut backoff = Backoff::default();
        loop {
            let sent = self.clock.now();
            match self.write(&self.record, deadline).await {
                Ok(WriteOutcome::Done(snapshot)) => {
                    (self.snapshot, self.sent) = (snapshot, sent);
                    let deadline = lock::deadline(sent, self.record.ttl());
                    self.state.send_modify(|state| state.deadline = deadline);
                    return Renewal::Kept;
                }
                Ok(WriteOutcome::Superseded | WriteOutcome::Conflict(..)) => return Renewal::Taken,
                Err(error) if error.is_unknown() => return Renewal::Late,
                // A refusal can pass, as an expired token does.
                Err(_) if self.raw.client.pause(backoff.next(), deadline).await => {}
                Err(_) => return Renewal::Late,
            }
        }
    }

    async fn release(&mut self) -> Result<(), Error> {
        let until = self.clock.now().saturating_add(RELEASE);
        loop {
            match self.write(&self.record.released(), until).await? {
                // A renewal has taken effect without a response.
                WriteOutcome::Conflict(_, Some(LoadedDocument::Found(found, _)))
                    if super::record(&found).is_ok_and(|found| found == self.record) =>
                {
                    self.snapshot = found;
                }
                // The conflict may be with a renewal that has taken effect without a response.
                WriteOutcome::Conflict(error, None) => {
                    return Err(Error::unknown(error.to_string()));
                }
                // Otherwise another client holds it already.
                WriteOutcome::Done(_) | WriteOutcome::Superseded | WriteOutcome::Conflict(..) => {
                    return Ok(());
                }
            }
        }
    }

    async fn write(&self, record: &LockRecord, until: Timestamp) -> Result<WriteOutcome, Error> {
        self.raw
            .write(
                Some(&self.snapshot),
                json(record)?,
                None,
                &mut RetryPace::until(until),
            )
            .await
    }
}
