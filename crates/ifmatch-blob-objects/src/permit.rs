//! The permit around every change of an object, which makes writers take turns.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use http::Method;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::records::{nonce, of_driver, refused};
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use ifmatch_core::command::{Begin, Command, Commit, Content, Doubt, Grant, Outcome, Renew};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::{Preconditions, Validators, Verdict};
use ifmatch_core::record::{Record, Revision, Token};
use ifmatch_register::{Applied, DriverError, Key, KeyLock, RegisterErrorKind};

use crate::attributes::StoredVersion;
use crate::failure::lost;
use crate::store_state::StoreState;

/// Duration of a permit, if this process ends before it returns the permit.
const TTL: Duration = Duration::from_mins(1);
/// Duration of the permit of a write with [`LateWriteGuard::Store`]. It differs, so the next process of the register can tell such a
/// permit: see [`records`](super::records).
const COVERED_TTL: Duration = Duration::from_secs(59);
/// Time during which a request with a lost response may still take effect.
pub(super) const GRACE: Duration = Duration::from_secs(15);
/// Maximum number of attempts while other programs keep changing the object.
pub(super) const TRIES: u32 = 8;
/// Pause before another attempt, multiplied by the number of attempts so far.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// Pause after the store rejected a write as too early: R2 accepts one write per second and object.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Keeps a late request from replacing a version that was written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateWriteGuard {
    /// The store, by the condition of the request.
    Store,
    /// Nothing but the permit.
    Permit,
}

impl LateWriteGuard {
    /// Returns a permit's duration.
    pub(super) fn ttl(self) -> Duration {
        match self {
            Self::Store => COVERED_TTL,
            Self::Permit => TTL,
        }
    }
}

/// A change under a permit.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardedChange<'a> {
    pub(super) method: &'a Method,
    /// The conditions that end the wait for the permit once they are false. A retry has none: its first attempt answers it.
    pub(super) preconditions: &'a Preconditions,
    pub(super) lease: LeaseUse,
    pub(super) cover: LateWriteGuard,
}

impl GuardedChange<'_> {
    /// A deletion that depends on no condition.
    pub(super) const DELETION: GuardedChange<'static> = GuardedChange {
        method: &Method::DELETE,
        preconditions: &Preconditions::NONE,
        lease: LeaseUse::Read(None),
        cover: LateWriteGuard::Permit,
    };

    /// Returns the refusal by a version that another writer of this register has committed since revision `since`,
    /// while this one waited. So no one needs to look at the object. If a program without the register wrote it after
    /// that writer, before its commit, the client gets a 412 that the object wouldn't have given, and reads again.
    ///
    /// The date in a record isn't the store's, so only conditions on tags are evaluated.
    fn overtaken(&self, since: Revision, record: &Record, now: Timestamp) -> Option<StoreError> {
        // A refusal by the lease comes first.
        record.check_lease(self.lease, now).ok()?;
        let version = record
            .state(now)
            .version()
            .filter(|version| version.generation() > since)?;
        let on_tags = Preconditions {
            if_unmodified_since: None,
            if_modified_since: None,
            ..self.preconditions.clone()
        };
        let validators = Validators {
            tags: version.tags(),
            last_modified: None,
        };
        let Verdict::Failed(precondition) = on_tags.evaluate(self.method, Some(&validators)) else {
            return None;
        };
        let failed = StoreErrorKind::PreconditionFailed {
            precondition,
            current: version.tags().first().cloned(),
        };
        Some(failed.into())
    }
}

/// The result of the work under a permit.
pub(super) enum GuardedOutcome<T> {
    /// It took effect.
    Done(T, Content),
    /// It didn't take effect.
    Refused(StoreError),
    /// The outcome is unknown. It may still take effect within the given time.
    Unknown(StoreError, Duration),
}

/// Prefix of the keys of blobs.
pub(super) const KEYS: &str = "b/";

/// Returns the key of a blob's record.
pub(super) fn key(blob: &BlobPath) -> Result<Key, StoreError> {
    let key = Key::new(format!("{KEYS}{}/{}", blob.container, blob.name));
    key.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

/// Ends a write that took effect.
pub(super) fn commit(token: Token, content: Content) -> Command<'static> {
    Command::Commit(Commit::new(token, content))
}

impl StoreState {
    /// Works on a blob while no other writer of the register does.
    ///
    /// The object is looked up under the permit, so writers of the same register can't make the result stale. Under a
    /// lease, the permit ends with the lease. `seen` is the blob's record, if it was loaded before.
    pub(super) async fn guarded<T>(
        &self,
        blob: &BlobPath,
        request: GuardedChange<'_>,
        seen: Option<Record>,
        work: impl Future<Output = GuardedOutcome<T>>,
    ) -> Result<T, StoreError> {
        let key = key(blob)?;
        let granted = self.begin(&key, &request, seen).await;
        if granted.is_err() {
            // The write may have started from an outdated record. The next one loads it.
            self.recent_records.forget(&key);
        }
        let (grant, begun, _lock) = granted?;
        let (token, mut deadline) = (grant.token, grant.deadline);
        let outcome = self.driver.until(self.end_of_work(deadline), work).await;
        let outcome =
            outcome.unwrap_or_else(|elapsed| GuardedOutcome::Unknown(lost(elapsed), GRACE));
        let (result, command) = match outcome {
            GuardedOutcome::Done(value, content) => (Ok(value), commit(token, content)),
            GuardedOutcome::Refused(error) => (Err(error), Command::Abort(token)),
            GuardedOutcome::Unknown(error, grace) => {
                deadline = self.prolong(&key, token, deadline, grace).await;
                (Err(error), Command::Doubt(Doubt::new(token, grace)))
            }
        };
        let returned = self.driver.give_back(&key, Some(begun), command, deadline);
        match returned.await {
            // The permit had ended, and another writer went ahead. One of the two may have overwritten the other.
            Ok(Applied {
                outcome: Outcome::Refused(refusal),
                ..
            }) if result.is_ok() => {
                Err(lost(refused(Outcome::Refused(refusal), self.driver.now())))
            }
            Ok(applied) => {
                self.recent_records
                    .keep(&key, applied.after, self.driver.now());
                result
            }
            // The object store knows the version. Only the early return of the permit is late.
            Err(error) => {
                tracing::warn!(%key, %error, "a permit could not be returned: trying again in the background until it ends");
                result
            }
        }
    }

    /// Lets a permit last for this long, even if the lease of its write ends before: the request could otherwise reach the
    /// blob of the next holder. If the register fails, tries again until the permit ends. Returns the end of the permit.
    async fn prolong(
        &self,
        key: &Key,
        token: Token,
        deadline: Timestamp,
        grace: Duration,
    ) -> Timestamp {
        if self.driver.now().until(deadline) >= grace {
            return deadline;
        }
        let renew = async || {
            let renew = Renew {
                token,
                ttl: grace,
                lease: LeaseUse::Read(None),
            };
            match self.driver.apply(key, &Command::Renew(renew)).await {
                Ok(Applied {
                    outcome: Outcome::Granted(grant),
                    ..
                }) => Some(grant.deadline),
                Ok(_) => Some(deadline),
                Err(error) => {
                    tracing::warn!(%key, %error, "a permit may end before a request with an unknown outcome: trying again");
                    None
                }
            }
        };
        let renewed = match renew().await {
            None => self.driver.retry_until(deadline, renew).await,
            first => first,
        };
        renewed.unwrap_or(deadline)
    }

    /// Returns the end of the work until a deadline: three quarters of what is left. An abandoned request may still take effect
    /// in the rest, while no one else writes.
    pub(super) fn end_of_work(&self, deadline: Timestamp) -> Timestamp {
        let now = self.driver.now();
        now.saturating_add(now.until(deadline) * 3 / 4)
    }

    /// Requests a permit, waiting for it. Returns the record with the permit.
    async fn begin(
        &self,
        key: &Key,
        request: &GuardedChange<'_>,
        seen: Option<Record>,
    ) -> Result<(Grant, Record, KeyLock<'_>), StoreError> {
        let begin = Begin::new(
            request.method,
            &Preconditions::NONE,
            nonce()?,
            request.cover.ttl(),
        );
        // The first record that is loaded while it waits. An earlier one may be outdated, and what came after it the past.
        let (since, refusal) = (OnceLock::new(), OnceLock::new());
        let is_overtaken = |record: &Record| {
            let since = *since.get_or_init(|| record.revision());
            match request.overtaken(since, record, self.driver.now()) {
                Some(error) => refusal.set(error).is_ok(),
                None => false,
            }
        };
        let begin = begin.with_lease(request.lease);
        let asked = self.driver.begin(key, seen, begin, is_overtaken).await;
        let (applied, lock) = asked.map_err(unbegun)?;
        match (applied.outcome, lock) {
            (Outcome::Granted(grant), Some(lock)) => Ok((grant, applied.after, lock)),
            (outcome, _) => Err(refusal
                .into_inner()
                .unwrap_or_else(|| refused(outcome, self.driver.now()))),
        }
    }

    /// Waits until the version to be replaced has existed for the store's tick.
    ///
    /// Its inode is then reused by a version with a later time, so tags that contain a time never recur.
    pub(super) async fn outlast(&self, current: Option<&StoredVersion>) {
        let tick = self.backing.tick;
        let Some(current) = current.filter(|_| !tick.is_zero()) else {
            return;
        };
        let now = i64::try_from(self.driver.clock().wall().micros()).unwrap_or(i64::MAX);
        let age = u64::try_from(now.saturating_sub(current.written)).unwrap_or_default();
        let rest = tick.saturating_sub(Duration::from_micros(age));
        self.driver.clock().sleep(rest).await;
    }
}

/// Checks the conditions against the current object.
pub(super) fn check(
    method: &Method,
    preconditions: &Preconditions,
    current: Option<&StoredVersion>,
) -> Result<(), StoreError> {
    let validators = current.map(|current| current.info.validators());
    match preconditions.evaluate(method, validators.as_ref()) {
        Verdict::Proceed | Verdict::NotModified => Ok(()),
        Verdict::Failed(precondition) => {
            let current = current.and_then(|current| current.info.tag.clone());
            Err(StoreErrorKind::PreconditionFailed {
                precondition,
                current,
            }
            .into())
        }
    }
}

/// Converts a driver's failure while requesting the write permit: the blob is unchanged.
fn unbegun(error: DriverError) -> StoreError {
    match error {
        DriverError::Register(error) if error.kind() == RegisterErrorKind::Ambiguous => {
            StoreError::new(StoreErrorKind::Unavailable, error)
        }
        other => of_driver(other),
    }
}
