//! A write as it arrived: its resource, conditions and lease.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response};
use ifmatch_core::command::Refusal;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use ifmatch_register::Key;

use crate::body::ResponseBody;
use crate::inner::InnerService;
use crate::lease::request::lease_of_write;
use crate::permit::ExpectedVersion;
use crate::read::compressed_tag;
use crate::responses;
use crate::shared::LayerState;

/// The response to a write, or the error of the inner service.
pub(crate) type WriteResult<S, B> =
    Result<Response<ResponseBody<<S as InnerService<B>>::Body>>, <S as InnerService<B>>::Error>;

/// A guarded write, or a lease operation.
pub(crate) struct WriteContext {
    pub(crate) shared: Arc<LayerState>,
    pub(crate) key: Key,
    pub(crate) head: Parts,
    /// The conditions, without the suffixes of compressed tags.
    pub(crate) conditions: Preconditions,
    /// The lease presented with the request.
    pub(crate) lease: LeaseUse,
    /// The version that the handler compares in place of the layer.
    pub(crate) unchecked: Option<ExpectedVersion>,
}

impl WriteContext {
    /// Parses the head of a write.
    ///
    /// # Errors
    /// 400 if the request is malformed, 428 if it lacks a required condition.
    pub(crate) fn new(shared: Arc<LayerState>, head: Parts) -> Result<Self, Problem> {
        let lease = lease_of_write(&shared.config, &head)?;
        let conditions = Preconditions::from_headers(&head.headers);
        if shared.config.refuses(&head, &conditions) {
            return Err(Problem::precondition_required(&head.method));
        }
        let mut context = Self::with_conditions(shared, head, conditions, lease)?;
        // The handler of POST makes another resource as a rule: the layer compares its conditions.
        if context.shared.config.handlers_check_versions && context.head.method != Method::POST {
            context.unchecked = ExpectedVersion::named_by(&context.conditions);
        }
        Ok(context)
    }

    /// Creates the context, with the key of the resource.
    ///
    /// # Errors
    /// 400 if the request doesn't name a valid resource.
    pub(crate) fn with_conditions(
        shared: Arc<LayerState>,
        head: Parts,
        mut conditions: Preconditions,
        lease: LeaseUse,
    ) -> Result<Self, Problem> {
        let key = shared
            .config
            .keys
            .key(&head)
            .map_err(|_| responses::invalid_key())?;
        if shared.config.behind_compression {
            conditions = compressed_tag::strip_suffixes(conditions);
        }
        Ok(Self {
            shared,
            key,
            head,
            conditions,
            lease,
            unchecked: None,
        })
    }

    /// Returns the problem to report for a refusal.
    pub(crate) fn problem(&self, refusal: &Refusal) -> Problem {
        match refusal {
            Refusal::PreconditionFailed {
                precondition,
                current,
            } => Problem::precondition_failed(*precondition, current.as_ref()),
            Refusal::InFlight { deadline } => {
                Problem::write_in_flight(self.shared.now().until(*deadline))
            }
            Refusal::Lease(failure) => Problem::lease_failed(*failure),
            Refusal::LeaseConflict(conflict) => Problem::lease_conflict(*conflict),
            Refusal::NotFound => Problem::not_found().code("ResourceNotFound"),
            Refusal::ProbeFirst | Refusal::Stale => {
                Problem::write_in_flight(self.shared.config.lock_timeout)
            }
        }
    }
}
