//! Leases: the operations, which the layer answers itself, and the uses of what is leased.

use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Request, Response, Uri};
use ifmatch_core::command::{Command, LeaseOperation, Observed, Outcome, Refusal};
use ifmatch_core::lease::{LeaseId, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use ifmatch_register::{Applied, DriverError, Key, Register};
use ifmatch_runtime::Clock;

use crate::body::ResponseBody;
use crate::config::Config;
use crate::read::cached::Sought;
use crate::read::compressed_tag;
use crate::responses;
use crate::shared::{Inner, Shared};
use crate::write::probe::Probed;
use crate::write::{Answer, MAX_PROBES, Writing};

mod reply;
mod request;

use request::LeaseRequest;

const LEASE_ID: HeaderName = HeaderName::from_static("x-ms-lease-id");

/// The lease that a write comes with.
///
/// # Errors
/// 400: it is no lease id.
pub(crate) fn of_write(config: &Config, head: &Parts) -> Result<LeaseUse, Problem> {
    if is_named(config, head) { id_of(&head.headers).map(LeaseUse::Write) } else { Ok(LeaseUse::default()) }
}

/// Whether a request names a lease, of a resource that has leases.
pub(crate) fn is_named(config: &Config, head: &Parts) -> bool {
    config.leases && head.headers.contains_key(LEASE_ID) && config.leases(head)
}

fn id_of(headers: &HeaderMap) -> Result<Option<LeaseId>, Problem> {
    request::id(headers, &LEASE_ID)
}

/// A read by a client that says which lease it has. The lease is looked at once more afterwards: what was read is then what
/// it protected all the time.
pub(crate) async fn read<S, B, R, C>(
    shared: Arc<Shared<R, C>>,
    inner: S,
    sought: Sought,
    request: Request<B>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    S: Inner<B>,
    B: Default + Send + 'static,
    R: Register,
    C: Clock,
{
    let key = sought.key.clone();
    let is_head = request.method() == Method::HEAD;
    let refused = |problem: &Problem| {
        let response = responses::problem(problem);
        Ok(if is_head { responses::without_body(response) } else { response })
    };
    let lease = match id_of(request.headers()) {
        Ok(id) => LeaseUse::Read(id),
        Err(problem) => return refused(&problem),
    };
    if let Err(problem) = shared.check_lease(&key, lease).await {
        return refused(&problem);
    }
    let response = crate::read::read(Arc::clone(&shared), inner, sought, request).await?;
    match shared.check_lease(&key, lease).await {
        Ok(()) => Ok(response),
        Err(problem) => refused(&problem),
    }
}

impl<R: Register, C: Clock> Shared<R, C> {
    /// Returns `true` if a lease lasts as long as its holder was promised.
    fn keeps_leases(&self) -> bool {
        self.config.ephemeral_leases || !self.driver.register().forgets()
    }

    async fn check_lease(&self, key: &Key, lease: LeaseUse) -> Result<(), Problem> {
        let Some(record) = self.answer(self.driver.load(key)).await else {
            return Err(Problem::unavailable(responses::LATER));
        };
        record.check_lease(lease, self.now()).map_err(Problem::lease_failed)
    }
}

/// A lease operation on its way.
pub(crate) struct Operating<R, C> {
    shared: Arc<Shared<R, C>>,
    /// The head of the request, as if it were about the resource.
    head: Parts,
}

impl<R: Register, C: Clock> Operating<R, C> {
    /// The lease operation that a request is, if it is one and the resource has leases. Its body means nothing.
    pub(crate) fn of(shared: &Arc<Shared<R, C>>, head: &Parts) -> Option<Self> {
        if !shared.config.leases || head.method != Method::PUT {
            return None;
        }
        let uri = without_marker(&head.uri)?;
        let mut head = head.clone();
        head.uri = uri;
        shared.config.leases(&head).then(|| Self { shared: Arc::clone(shared), head })
    }

    /// Carries it out. It waits for a write in flight, and asks the inner service for the resource before it leases what
    /// nobody knows to exist.
    pub(crate) async fn run<S, B>(self, mut inner: S) -> Answer<S, B>
    where
        S: Inner<B>,
        B: Default,
    {
        let Self { shared, mut head } = self;
        if !shared.keeps_leases() {
            return Ok(responses::leases_not_kept());
        }
        let wanted = match LeaseRequest::of(&head.headers) {
            Ok(wanted) => wanted,
            Err(problem) => return Ok(responses::problem(&problem)),
        };
        let Ok(key) = shared.config.keys.key(&head) else { return Ok(responses::no_such_key()) };
        let mut conditions = Preconditions::from_headers(&head.headers);
        if shared.config.behind_compression {
            conditions = compressed_tag::strip(conditions);
        }
        request::strip(&mut head.headers);
        let give_up = shared.now().saturating_add(shared.config.patience);
        let writing = Writing { shared, key, head, conditions, lease: LeaseUse::default() };
        let mut observed = None;
        for probes in 0..MAX_PROBES {
            let applied = match writing.operate(&wanted, observed.as_ref()).await {
                Ok(applied) => applied,
                Err(error) if error.is_ambiguous() => return Ok(responses::interrupted()),
                Err(_) => return Ok(responses::unavailable()),
            };
            match &applied.outcome {
                Outcome::Leased(receipt) => {
                    return Ok(reply::carried_out(&writing, &wanted, receipt, &applied, observed.as_ref()));
                }
                Outcome::Refused(Refusal::ProbeFirst) if probes == 0 || writing.shared.now() < give_up => {}
                Outcome::Refused(refusal) => return Ok(responses::problem(&writing.problem(refusal))),
                _ => return Ok(responses::unavailable()),
            }
            observed = match writing.probe(&mut inner).await {
                Probed::Seen(seen) => Some(seen),
                Probed::InFlight => None,
                Probed::Answer(answer) => return answer,
            };
        }
        Ok(responses::problem(&Problem::write_in_flight(writing.shared.config.patience)))
    }
}

impl<R: Register, C: Clock> Writing<R, C> {
    async fn operate(&self, wanted: &LeaseRequest, observed: Option<&Observed>) -> Result<Applied, DriverError> {
        let operation = LeaseOperation {
            action: wanted.action,
            preconditions: &self.conditions,
            observed: observed.cloned(),
            authority: self.shared.config.authority,
            request: wanted.request,
            nonce: ifmatch_runtime::nonce()?,
        };
        self.shared.driver.apply_in_turn(&self.key, &Command::Lease(operation)).await
    }
}

/// The address without the `comp=lease` that makes a request a lease operation; none if it is not there.
fn without_marker(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    let kept: Vec<_> = query.split('&').filter(|pair| *pair != "comp=lease").collect();
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
    fn the_marker_is_one_pair_of_the_query() {
        let cases = [
            ("/a?comp=lease", Some("/a")),
            ("/a?x=1&comp=lease&y=2", Some("/a?x=1&y=2")),
            ("http://example.org/a?comp=lease", Some("http://example.org/a")),
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
