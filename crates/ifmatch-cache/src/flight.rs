//! One request to the origin for all who wait for the same response.

use std::sync::{Arc, Weak};

use http::StatusCode;
use tokio::sync::watch;

use crate::key::Key;
use crate::stored::Stored;
use crate::table::Table;

/// What became of the request to the origin.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// There is no answer yet.
    Pending,
    /// The response can be stored; its body may still be coming.
    Ready(Stored),
    /// The condition shared by all waiting requests is false, so each gets this 304.
    Unmodified(Stored),
    /// The origin failed, by this status or without any answer.
    Failed(Option<StatusCode>),
    /// The response is for one client only, or the request was given up: all others must ask for themselves.
    Alone,
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Flight(watch::Sender<Outcome>);

impl Flight {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(watch::channel(Outcome::Pending).0))
    }

    /// Returns `true` if there is no answer yet.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(*self.0.borrow(), Outcome::Pending)
    }

    /// Waits for an answer.
    pub(crate) async fn outcome(&self) -> Outcome {
        let mut receiver = self.0.subscribe();
        let outcome = receiver.wait_for(|outcome| !matches!(outcome, Outcome::Pending)).await;
        outcome.map_or(Outcome::Alone, |outcome| outcome.clone())
    }
}

/// The place of the one who asks the origin for the others. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Pilot {
    table: Weak<Table>,
    key: Key,
    flight: Arc<Flight>,
}

impl Pilot {
    pub(crate) fn new(table: &Arc<Table>, key: Key, flight: Arc<Flight>) -> Self {
        Self { table: Arc::downgrade(table), key, flight }
    }

    /// Tells the others.
    pub(crate) fn tell(&self, outcome: Outcome) {
        self.flight.0.send_replace(outcome);
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.land(&self.key, &self.flight);
        }
        self.flight.0.send_if_modified(|outcome| {
            let pending = matches!(outcome, Outcome::Pending);
            if pending {
                *outcome = Outcome::Alone;
            }
            pending
        });
    }
}
