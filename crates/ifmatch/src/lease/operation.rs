//! Lease operations: `PUT …?comp=lease`.

use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Uri};
use ifmatch_core::command::{Command, LeaseOperation, Observed, Outcome, Refusal};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use ifmatch_register::{Applied, DriverError, Guarantee};

use super::reply;
use super::request::{LeaseRequest, strip_lease_fields};
use crate::inner::{InnerService, RequestContent};
use crate::mount;
use crate::responses;
use crate::shared::LayerState;
use crate::write::begin::MAX_PROBES;
use crate::write::probe::ProbeResult;
use crate::write::request::{WriteContext, WriteResult};

/// A lease operation about to run.
pub(crate) struct PendingLeaseOperation {
    shared: Arc<LayerState>,
    /// The head of the request, with the resource itself as its target.
    head: Parts,
}

impl PendingLeaseOperation {
    /// Returns the lease operation in a request, if it is one and the resource has leases. The body is ignored.
    pub(crate) fn of(shared: &Arc<LayerState>, head: &Parts) -> Option<Self> {
        if !shared.config.leases || head.method != Method::PUT {
            return None;
        }
        without_marker(&head.uri)?;
        let mut head = head.clone();
        mount::map(&mut head, without_marker)?;
        shared.config.leases(&head).then(|| Self {
            shared: Arc::clone(shared),
            head,
        })
    }

    /// Runs the operation. Waits for a write in flight, and probes a resource of unknown state.
    pub(crate) async fn run<S, B>(self, mut inner: S) -> WriteResult<S, B>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let Self { shared, head } = self;
        if !shared.config.ephemeral_leases
            && shared.driver.register().engine().guarantee != Guarantee::Linearizable
        {
            return Ok(responses::leases_not_kept());
        }
        let request = match LeaseRequest::parse(&head.headers) {
            Ok(request) => request,
            Err(problem) => return Ok(responses::problem(&problem)),
        };
        let conditions = Preconditions::from_headers(&head.headers);
        let give_up = shared
            .driver
            .clock()
            .now()
            .saturating_add(shared.config.lock_timeout);
        let mut context =
            match WriteContext::with_conditions(shared, head, conditions, LeaseUse::default()) {
                Ok(context) => context,
                Err(problem) => return Ok(responses::problem(&problem)),
            };
        strip_lease_fields(&mut context.head.headers);
        let mut observed = None;
        for probes in 0..MAX_PROBES {
            let applied = match apply(&context, &request, observed.as_ref()).await {
                Ok(applied) => applied,
                Err(error) if error.is_ambiguous() => return Ok(responses::outcome_unknown()),
                Err(_) => return Ok(responses::unavailable()),
            };
            match &applied.outcome {
                Outcome::Leased(receipt) => {
                    return Ok(reply::success(
                        &context,
                        &request,
                        receipt,
                        &applied,
                        observed.as_ref(),
                    ));
                }
                Outcome::Refused(Refusal::ProbeFirst)
                    if probes == 0 || context.shared.driver.clock().now() < give_up => {}
                Outcome::Refused(refusal) => {
                    return Ok(responses::problem(&context.problem(refusal)));
                }
                _ => return Ok(responses::unavailable()),
            }
            observed = match context.probe(&mut inner).await {
                ProbeResult::Observed(observation) => Some(observation),
                ProbeResult::InFlight => None,
                ProbeResult::Failed(result) => return result,
            };
        }
        Ok(responses::problem(&Problem::write_in_flight(
            context.shared.config.lock_timeout,
        )))
    }
}

async fn apply(
    context: &WriteContext,
    request: &LeaseRequest,
    observed: Option<&Observed>,
) -> Result<Applied, DriverError> {
    let operation = LeaseOperation::new(
        request.action,
        &context.conditions,
        ifmatch_runtime::nonce()?,
    )
    .with_observed(observed.cloned())
    .with_authority(context.shared.config.authority)
    .with_request(request.id);
    context
        .shared
        .driver
        .apply_in_turn(&context.key, &Command::Lease(operation))
        .await
}

/// Removes `comp=lease`, the marker of lease operations, from the query. Returns `None` without it.
fn without_marker(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    let kept: Vec<_> = query
        .split('&')
        .filter(|pair| *pair != "comp=lease")
        .collect();
    if kept.len() == query.split('&').count() {
        return None;
    }
    let separator = if kept.is_empty() { "" } else { "?" };
    let text = format!("{}{separator}{}", uri.path(), kept.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(text.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_a_pair_in_the_query() {
        let cases = [
            ("/a?comp=lease", Some("/a")),
            ("/a?x=1&comp=lease&y=2", Some("/a?x=1&y=2")),
            (
                "http://example.org/a?comp=lease",
                Some("http://example.org/a"),
            ),
            ("/a", None),
            ("/a?comp=leases", None),
            ("/a?comp=metadata", None),
            ("/a?xcomp=lease", None),
            ("/comp=lease", None),
        ];
        for (uri, expected) in cases {
            let found = without_marker(&Uri::from_static(uri)).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{uri}");
        }
    }
}
