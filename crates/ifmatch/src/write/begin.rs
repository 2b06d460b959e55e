//! Asking for the permit, with a probe of the resource where its state is not known.

use std::pin::pin;

use futures_util::future::{Either, select};
use ifmatch_core::command::{Begin, Grant, Observed, Outcome, Refusal};
use ifmatch_core::problem::Problem;
use ifmatch_register::{Applied, DriverError, KeyLock, Register};
use ifmatch_runtime::Clock;

use super::probe::Probed;
use super::{Answer, Writing};
use crate::responses;
use crate::shared::Inner;

/// How often a probe may prove out of date before the write is refused.
pub(crate) const MAX_PROBES: u32 = 32;

impl<R: Register, C: Clock> Writing<R, C> {
    /// Waits in turn for the permit, and returns it with the lock of this process's writer.
    ///
    /// # Errors
    /// The write is refused; this is the answer to it.
    pub(crate) async fn begin<S, B>(&self, inner: &mut S) -> Result<(Grant, KeyLock<'_>), Answer<S, B>>
    where
        S: Inner<B>,
        B: Default,
    {
        let patience = self.shared.config.patience;
        let give_up = self.shared.now().saturating_add(patience);
        let mut turn = self.shared.probing.join(&self.key);
        let sleep = self.shared.driver.clock().sleep(patience);
        if let Either::Right(_) = select(pin!(turn.front()), pin!(sleep)).await {
            return Err(Ok(responses::problem(&Problem::write_in_flight(patience))));
        }
        let mut observed = None;
        for probes in 0..MAX_PROBES {
            let (applied, lock) = self.ask(observed.take()).await.map_err(|_| Ok(responses::unavailable()))?;
            match (applied.outcome, lock) {
                (Outcome::Granted(grant), Some(lock)) => return Ok((grant, lock)),
                (Outcome::Refused(Refusal::ProbeFirst), _) if probes == 0 || self.shared.now() < give_up => {}
                (Outcome::Refused(refusal), _) => return Err(Ok(responses::problem(&self.problem(&refusal)))),
                _ => return Err(Ok(responses::unavailable())),
            }
            match self.probe(inner).await {
                Probed::Seen(seen) => observed = Some(seen),
                // The next begin waits until it is over.
                Probed::InFlight => {}
                Probed::Answer(answer) => return Err(answer),
            }
        }
        Err(Ok(responses::problem(&Problem::write_in_flight(patience))))
    }

    async fn ask(&self, observed: Option<Observed>) -> Result<(Applied, Option<KeyLock<'_>>), DriverError> {
        let begin = Begin {
            method: &self.head.method,
            preconditions: &self.conditions,
            lease: self.lease,
            observed,
            authority: self.shared.config.authority,
            nonce: ifmatch_runtime::nonce()?,
            ttl: self.shared.config.write_timeout,
        };
        self.shared.driver.begin(&self.key, None, begin).await
    }

    pub(crate) fn problem(&self, refusal: &Refusal) -> Problem {
        match refusal {
            Refusal::PreconditionFailed { precondition, current } => {
                Problem::precondition_failed(*precondition, current.as_ref())
            }
            Refusal::InFlight { deadline } => Problem::write_in_flight(self.shared.now().until(*deadline)),
            Refusal::Lease(failure) => Problem::lease_failed(*failure),
            Refusal::LeaseConflict(conflict) => Problem::lease_conflict(*conflict),
            Refusal::NotFound => Problem::not_found().code("ResourceNotFound"),
            Refusal::ProbeFirst | Refusal::Stale => Problem::write_in_flight(self.shared.config.patience),
        }
    }
}
