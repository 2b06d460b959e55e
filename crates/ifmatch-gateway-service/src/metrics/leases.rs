//! Metrics of leases, and the store that updates them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ifmatch_blob::BlobStore;
use ifmatch_blob::leases::LeaseTarget;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{Delete, LeaseRequest, Leased, Peek, StoreError, Wrapper};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{LeaseAction, LeaseReceipt, LeaseState, SeenLease};
use ifmatch_runtime::{Clock, SystemClock};
use metrics::{Counter, Gauge, counter, gauge};

use super::table::leases::{HELD, OPERATIONS};
use crate::leases::listing::LeaseEntry;

/// Active leases, and counters of lease operations.
///
/// Expiry isn't an operation. It is counted by the next `expire`.
pub struct LeaseMetrics {
    active: Mutex<ActiveLeases>,
    held: Gauge,
    acquired: Counter,
    renewed: Counter,
    changed: Counter,
    released: Counter,
    broken: Counter,
    expired: Counter,
    refused: Counter,
}

/// The active leases, and what an unfinished backfill must not overwrite.
#[derive(Default)]
struct ActiveLeases {
    leases: BTreeMap<LeaseTarget, Held>,
    backfill: Option<Backfill>,
}

/// An active lease.
struct Held {
    seen: SeenLease,
    /// When it was seen, by this process's clock.
    own: Timestamp,
    /// The time of its last operation, by the clock that ends it. Zero if that is unknown.
    operated: Timestamp,
}

/// Changes since the start of the backfill, which may read older states.
#[derive(Default)]
struct Backfill {
    used: BTreeSet<LeaseTarget>,
    deleted: BTreeSet<ContainerName>,
}

impl Default for LeaseMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl LeaseMetrics {
    /// Registers the metrics with the current recorder.
    pub fn new() -> Self {
        let operation = |outcome: &'static str| counter!(OPERATIONS, "outcome" => outcome);
        Self {
            active: Mutex::default(),
            held: gauge!(HELD),
            acquired: operation("acquired"),
            renewed: operation("renewed"),
            changed: operation("changed"),
            released: operation("released"),
            broken: operation("broken"),
            expired: operation("expired"),
            refused: operation("refused"),
        }
    }

    /// Records a successful operation, at `now` by this process's clock.
    ///
    /// Concurrent operations may be recorded in either order: the later one takes effect.
    pub(crate) fn record(
        &self,
        target: LeaseTarget,
        action: LeaseAction,
        receipt: &LeaseReceipt,
        now: Timestamp,
    ) {
        let counter = match action {
            LeaseAction::Acquire { .. } => &self.acquired,
            LeaseAction::Renew(_) => &self.renewed,
            LeaseAction::Change { .. } => &self.changed,
            LeaseAction::Release(_) => &self.released,
            LeaseAction::Break { .. } => &self.broken,
        };
        counter.increment(1);
        let mut active = self.active();
        if active
            .leases
            .get(&target)
            .is_none_or(|held| held.operated <= receipt.at)
        {
            self.remove(&mut active, &target, now);
            if let Some(backfill) = &mut active.backfill {
                backfill.used.insert(target.clone());
            }
            let seen = receipt.lease.map(|lease| SeenLease {
                lease,
                at: receipt.at,
            });
            let seen = seen.filter(|seen| seen.state().is_locked());
            active.leases.extend(seen.map(|seen| {
                (
                    target,
                    Held {
                        seen,
                        own: now,
                        operated: receipt.at,
                    },
                )
            }));
        }
        self.held.set(active.count());
    }

    /// Counts a rejection because of a lease.
    pub(crate) fn refused(&self) {
        self.refused.increment(1);
    }

    /// Records a deletion. Deleting a container drops the leases of its blobs.
    pub(crate) fn record_deletion(&self, target: &LeaseTarget, now: Timestamp) {
        let mut active = self.active();
        let gone = if target.blob.is_some() {
            vec![target.clone()]
        } else {
            active.within(&target.container)
        };
        for target in &gone {
            self.remove(&mut active, target, now);
        }
        if let Some(backfill) = &mut active.backfill {
            match target.blob {
                Some(_) => drop(backfill.used.insert(target.clone())),
                None => drop(backfill.deleted.insert(target.container.clone())),
            }
        }
        self.held.set(active.count());
    }

    /// Starts the backfill of older leases by [`LeaseMetrics::add`].
    pub fn begin_backfill(&self) {
        self.active().backfill = Some(Backfill::default());
    }

    /// Adds a lease found in the store, unless it has changed since the start of the backfill.
    pub fn add(&self, LeaseEntry { target, lease }: LeaseEntry, now: Timestamp) {
        let mut active = self.active();
        let is_current = active
            .backfill
            .as_ref()
            .is_some_and(|backfill| !backfill.saw(&target));
        if is_current && lease.state().is_locked() {
            active.leases.insert(
                target,
                Held {
                    seen: lease,
                    own: now,
                    operated: Timestamp::default(),
                },
            );
            self.held.set(active.count());
        }
    }

    /// Ends the backfill.
    pub fn end_backfill(&self) {
        self.active().backfill = None;
    }

    /// Removes and counts expired leases.
    pub(crate) fn expire(&self, now: Timestamp) {
        let mut active = self.active();
        let over = active
            .leases
            .iter()
            .filter(|(_, held)| !held.state(now).is_locked());
        let over: Vec<LeaseTarget> = over.map(|(target, _)| target.clone()).collect();
        for target in &over {
            self.remove(&mut active, target, now);
        }
        self.held.set(active.count());
    }

    /// Removes a lease, and counts it if it has expired.
    fn remove(&self, active: &mut ActiveLeases, target: &LeaseTarget, now: Timestamp) {
        let removed = active.leases.remove(target);
        if removed.is_some_and(|held| held.state(now) == LeaseState::Expired) {
            self.expired.increment(1);
        }
    }

    fn active(&self) -> MutexGuard<'_, ActiveLeases> {
        // A panic leaves no partial entries behind.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Returns the state at `now` by this process's clock. The clock that ends the lease has advanced by as much as this
    /// one since the lease was seen.
    fn state(&self, now: Timestamp) -> LeaseState {
        self.seen
            .lease
            .state(self.seen.at.saturating_add(self.own.until(now)))
    }
}

impl ActiveLeases {
    /// Returns the leased targets in a container, including itself.
    fn within(&self, container: &ContainerName) -> Vec<LeaseTarget> {
        self.leases
            .range(container_target(container)..)
            .map(|(target, _)| target)
            .take_while(|target| target.container == *container)
            .cloned()
            .collect()
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge is a float, exact up to 2^53"
    )]
    fn count(&self) -> f64 {
        self.leases.len() as f64
    }
}

impl Backfill {
    /// Returns `true` if a target has changed since the start of the backfill.
    fn saw(&self, target: &LeaseTarget) -> bool {
        self.used.contains(target) || self.deleted.contains(&target.container)
    }
}

/// A store that updates [`LeaseMetrics`].
#[derive(Clone)]
pub struct MeteredStore {
    store: Arc<dyn BlobStore>,
    metrics: Arc<LeaseMetrics>,
}

impl MeteredStore {
    /// Updates `metrics` with the operations on `store`.
    pub fn new(store: Arc<dyn BlobStore>, metrics: Arc<LeaseMetrics>) -> Self {
        Self { store, metrics }
    }

    /// Removes expired leases from the metrics.
    pub(crate) fn expire_leases(&self) {
        self.metrics.expire(SystemClock.now());
    }

    /// Counts a rejection because of a lease.
    pub(crate) fn refused(&self) {
        self.metrics.refused();
    }

    /// Records an operation if it has succeeded.
    fn record(
        &self,
        target: LeaseTarget,
        request: &LeaseRequest,
        result: Result<Leased, StoreError>,
    ) -> Result<Leased, StoreError> {
        let leased = result?;
        self.metrics
            .record(target, request.action, &leased.receipt, SystemClock.now());
        Ok(leased)
    }

    /// Records a deletion if it has succeeded.
    fn record_deletion(
        &self,
        target: &LeaseTarget,
        result: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        result?;
        self.metrics.record_deletion(target, SystemClock.now());
        Ok(())
    }
}

#[async_trait]
impl Wrapper for MeteredStore {
    fn inner(&self) -> &dyn BlobStore {
        &*self.store
    }

    fn peek(&self) -> Option<&dyn Peek> {
        self.store.peek()
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        self.record_deletion(&target(blob), self.store.delete(blob, delete).await)
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.record(
            target(blob),
            &request.clone(),
            self.store.lease(blob, request).await,
        )
    }

    async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        let result = self.store.lease_container(container, request.clone()).await;
        self.record(container_target(container), &request, result)
    }

    async fn delete_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        self.record_deletion(
            &container_target(container),
            self.store.delete_container(container, delete).await,
        )
    }

    async fn delete_empty_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        self.record_deletion(
            &container_target(container),
            self.store.delete_empty_container(container, delete).await,
        )
    }
}

fn container_target(container: &ContainerName) -> LeaseTarget {
    LeaseTarget {
        container: container.clone(),
        blob: None,
    }
}

fn target(blob: &BlobPath) -> LeaseTarget {
    LeaseTarget {
        container: blob.container.clone(),
        blob: Some(blob.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ifmatch_core::lease::Lease;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000);
    const LATER: Timestamp = Timestamp::from_micros(2_000_000);

    fn target(text: &str) -> LeaseTarget {
        LeaseTarget::new(text).unwrap()
    }

    /// A lease that is held until `end`, forever if there is none.
    fn lease(end: Option<Timestamp>) -> Lease {
        let (id, phase) = ([7; 16], json!({ "Held": end }));
        serde_json::from_value(
            json!({ "id": id, "duration": "Infinite", "phase": phase, "token": 1 }),
        )
        .unwrap()
    }

    fn acquire(metrics: &LeaseMetrics, text: &str, lease: Lease, at: Timestamp) {
        let action = LeaseAction::Acquire {
            id: lease.id(),
            duration: lease.duration(),
            holder: None,
        };
        metrics.record(
            target(text),
            action,
            &LeaseReceipt {
                lease: Some(lease),
                at,
            },
            at,
        );
    }

    fn release(metrics: &LeaseMetrics, text: &str, at: Timestamp) {
        let action = LeaseAction::Release(lease(None).id());
        metrics.record(target(text), action, &LeaseReceipt { lease: None, at }, at);
    }

    fn held(metrics: &LeaseMetrics) -> Vec<String> {
        metrics
            .active()
            .leases
            .keys()
            .map(ToString::to_string)
            .collect()
    }

    /// One client releases and another acquires, and the release is recorded last.
    #[test]
    fn the_later_operation_wins_in_any_order_of_recording() {
        let metrics = LeaseMetrics::new();
        acquire(&metrics, "c/a", lease(None), LATER);
        release(&metrics, "c/a", NOW);
        assert_eq!(held(&metrics), ["c/a"]);
        release(&metrics, "c/a", LATER);
        assert!(held(&metrics).is_empty());
    }

    /// The backfill may read a state from before an operation that has already been recorded.
    #[test]
    fn the_backfill_restores_no_ended_lease() {
        let metrics = LeaseMetrics::new();
        metrics.begin_backfill();
        release(&metrics, "c/released", NOW);
        metrics.record_deletion(&target("c/deleted"), NOW);
        metrics.record_deletion(&target("gone"), NOW);
        acquire(&metrics, "d", lease(None), NOW);
        let seen = || SeenLease {
            lease: lease(None),
            at: NOW,
        };
        for found in [
            "c",
            "c/released",
            "c/deleted",
            "c/a",
            "gone",
            "gone/a",
            "d/a",
        ] {
            metrics.add(
                LeaseEntry {
                    target: target(found),
                    lease: seen(),
                },
                NOW,
            );
        }
        metrics.end_backfill();
        metrics.add(
            LeaseEntry {
                target: target("late"),
                lease: seen(),
            },
            NOW,
        );
        assert_eq!(held(&metrics), ["c", "c/a", "d", "d/a"]);
    }

    #[test]
    fn deleting_a_container_drops_the_leases_of_its_blobs_only() {
        let metrics = LeaseMetrics::new();
        for text in ["a", "b", "b/1", "b/2", "b-c/1", "c/1"] {
            acquire(&metrics, text, lease(None), NOW);
        }
        metrics.record_deletion(&target("b"), NOW);
        assert_eq!(held(&metrics), ["a", "b-c/1", "c/1"]);
        metrics.record_deletion(&target("c/1"), NOW);
        assert_eq!(held(&metrics), ["a", "b-c/1"]);
    }

    #[test]
    fn expired_leases_are_removed() {
        let metrics = LeaseMetrics::new();
        acquire(&metrics, "c/a", lease(Some(LATER)), NOW);
        acquire(&metrics, "c/b", lease(None), NOW);
        metrics.expire(NOW);
        assert_eq!(held(&metrics), ["c/a", "c/b"]);
        metrics.expire(LATER);
        assert_eq!(held(&metrics), ["c/b"]);
    }

    /// The clock that ends the lease is an hour ahead of this process's.
    #[test]
    fn a_lease_expires_by_the_clock_that_granted_it() {
        let (metrics, ahead) = (LeaseMetrics::new(), |time: Timestamp| {
            time.saturating_add(Duration::from_hours(1))
        });
        let lease = lease(Some(ahead(LATER)));
        let action = LeaseAction::Acquire {
            id: lease.id(),
            duration: lease.duration(),
            holder: None,
        };
        metrics.record(
            target("c/a"),
            action,
            &LeaseReceipt {
                lease: Some(lease),
                at: ahead(NOW),
            },
            NOW,
        );
        metrics.expire(NOW);
        assert_eq!(held(&metrics), ["c/a"]);
        metrics.expire(LATER);
        assert!(held(&metrics).is_empty());
    }
}
