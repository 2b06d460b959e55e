//! Requesting the permit, after a probe of the resource if its state is unknown.

use std::pin::pin;

use futures_util::future::{Either, select};
use ifmatch_core::command::{Authority, Begin, Grant, Observed, Outcome, Refusal};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use ifmatch_register::{Applied, DriverError, KeyLock};

use super::probe::ProbeResult;
use super::request::{WriteContext, WriteResult};
use crate::inner::{InnerService, RequestContent};
use crate::responses;

/// Maximum number of stale probes before the write is rejected.
pub(crate) const MAX_PROBES: u32 = 32;

impl WriteContext {
    /// Waits for the permit, and returns it with the lock that keeps this process's other writers away.
    ///
    /// # Errors
    /// Returns the result of the write if it is rejected.
    pub(crate) async fn begin<S, B>(
        &self,
        inner: &mut S,
    ) -> Result<(Grant, KeyLock<'_>), WriteResult<S, B>>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let timeout = self.shared.config.lock_timeout;
        let give_up = self.shared.driver.clock().now().saturating_add(timeout);
        let mut turn = self.shared.probing.join(&self.key);
        let sleep = self.shared.driver.clock().sleep(timeout);
        if let Either::Right(_) = select(pin!(turn.front()), pin!(sleep)).await {
            return Err(Ok(responses::problem(&Problem::write_in_flight(timeout))));
        }
        let mut observed = None;
        if self.probes_first() {
            match self.probe(inner).await {
                ProbeResult::Observed(observation) => observed = Some(observation),
                ProbeResult::InFlight => {}
                ProbeResult::Failed(result) => return Err(result),
            }
        }
        for probes in 0..MAX_PROBES {
            let applied = self.request_permit(observed.take()).await;
            let (applied, lock) = applied.map_err(|_| Ok(responses::unavailable()))?;
            match (applied.outcome, lock) {
                (Outcome::Granted(grant), Some(lock)) => return Ok((grant, lock)),
                (Outcome::Refused(Refusal::ProbeFirst), _)
                    if probes == 0 || self.shared.driver.clock().now() < give_up => {}
                (Outcome::Refused(refusal), _) => {
                    return Err(Ok(responses::problem(&self.problem(&refusal))));
                }
                _ => return Err(Ok(responses::unavailable())),
            }
            match self.probe(inner).await {
                ProbeResult::Observed(observation) => observed = Some(observation),
                // The next request for the permit waits until that write ends.
                ProbeResult::InFlight => {}
                ProbeResult::Failed(result) => return Err(result),
            }
        }
        Err(Ok(responses::problem(&Problem::write_in_flight(timeout))))
    }

    /// Returns `true` if the first request for a permit would be refused for want of a probe. Not with leases, since a writer without
    /// the lease mustn't learn more than that.
    fn probes_first(&self) -> bool {
        let config = &self.shared.config;
        let compares = self.unchecked.is_none() && !self.conditions.is_empty();
        compares && config.authority == Authority::Resource && !config.leases
    }

    async fn request_permit(
        &self,
        observed: Option<Observed>,
    ) -> Result<(Applied, Option<KeyLock<'_>>), DriverError> {
        let conditions = if self.unchecked.is_some() {
            &Preconditions::NONE
        } else {
            &self.conditions
        };
        let (nonce, ttl) = (ifmatch_runtime::nonce()?, self.shared.config.write_timeout);
        let begin = Begin::new(&self.head.method, conditions, nonce, ttl)
            .with_lease(self.lease)
            .with_observed(observed)
            .with_authority(self.shared.config.authority);
        self.shared
            .driver
            .begin(&self.key, None, begin, |_| false)
            .await
    }
}
