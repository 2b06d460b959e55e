//! Lease header fields of a request.

use http::HeaderMap;
use http::request::Parts;
use ifmatch_core::lease::azure::{
    self, BREAK_PERIOD, CLIENT_REQUEST_ID, DURATION, ID, PROPOSED_ID,
};
use ifmatch_core::lease::{LeaseAction, LeaseId, LeaseUse, fields};
use ifmatch_core::problem::Problem;
use ifmatch_core::record::RequestId;
use ifmatch_runtime::random_bytes;

use crate::config::LayerConfig;
use crate::responses;

/// A lease operation and the identity of its request.
#[derive(Debug)]
pub(super) struct LeaseRequest {
    pub(super) action: LeaseAction,
    pub(super) id: Option<RequestId>,
}

impl LeaseRequest {
    /// Parses the header fields of a lease operation.
    ///
    /// # Errors
    /// 400 if a field is missing, malformed or out of range; 503 if the system has no random numbers for a new id.
    pub(super) fn parse(headers: &HeaderMap) -> Result<Self, Problem> {
        let action = azure::action(headers, random_id)?;
        let given = [ID, PROPOSED_ID, DURATION, BREAK_PERIOD].map(|name| headers.get(name));
        let id = azure::single(headers, CLIENT_REQUEST_ID)?.map(|client| {
            let given = given.map(|value| value.map_or(&b""[..], |value| value.as_bytes()));
            let name = azure::action_name(&action).as_bytes();
            RequestId::of(&[
                client.as_bytes(),
                name,
                given[0],
                given[1],
                given[2],
                given[3],
            ])
        });
        Ok(Self { action, id })
    }
}

/// Returns the lease that a write presents.
///
/// # Errors
/// 400 if it isn't a lease id.
pub(crate) fn lease_of_write(config: &LayerConfig, head: &Parts) -> Result<LeaseUse, Problem> {
    if names_lease(config, head) {
        lease_id(&head.headers).map(LeaseUse::Write)
    } else {
        Ok(LeaseUse::default())
    }
}

/// Returns `true` if a request presents a lease, to a resource that has leases.
pub(crate) fn names_lease(config: &LayerConfig, head: &Parts) -> bool {
    config.leases
        && [ID, fields::ID]
            .iter()
            .any(|name| head.headers.contains_key(name))
        && config.leases(head)
}

/// Returns the lease id that a request presents.
///
/// # Errors
/// 400 if it isn't a lease id.
pub(super) fn lease_id(headers: &HeaderMap) -> Result<Option<LeaseId>, Problem> {
    match (azure::id(headers, ID)?, azure::id(headers, fields::ID)?) {
        (Some(one), Some(other)) if one != other => Err(Problem::bad_request(
            "x-ms-lease-id and Lease-Id name two leases. Send one of them",
        )),
        (one, other) => Ok(one.or(other)),
    }
}

/// Removes the fields of a lease operation, since a probe is about the resource.
pub(super) fn strip_lease_fields(headers: &mut HeaderMap) {
    for name in azure::OPERATION_HEADERS {
        headers.remove(name);
    }
}

fn random_id() -> Result<LeaseId, Problem> {
    random_bytes()
        .map(LeaseId::from_random)
        .map_err(|_| Problem::unavailable(responses::RETRY_AFTER))
}
