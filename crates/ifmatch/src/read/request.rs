//! A read as it arrived, and the state of its resource at that time.

use std::sync::Arc;

use http::header::{IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method};
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::{CONDITIONAL_HEADERS, Preconditions};
use ifmatch_core::record::{Record, Revision, Variant};
use ifmatch_register::Key;

use crate::memory::RememberedHead;
use crate::read::dates::DatedVersion;
use crate::read::vary::VaryFields;
use crate::shared::LayerState;

/// A read that runs the inner service.
pub(crate) struct ReadContext {
    pub(crate) shared: Arc<LayerState>,
    pub(crate) request: ReadRequest,
    pub(crate) baseline: ReadBaseline,
}

/// A GET or HEAD as the client sent it.
#[derive(Debug)]
pub(crate) struct ReadRequest {
    pub(crate) key: Key,
    pub(crate) is_head: bool,
    pub(crate) query: Option<Box<str>>,
    pub(crate) headers: HeaderMap,
    pub(crate) conditions: Preconditions,
    /// `true` if other clients may get the response, too.
    pub(crate) is_shareable: bool,
}

/// The state of the resource when a read began.
#[derive(Debug)]
pub(crate) struct ReadBaseline {
    pub(crate) at: Timestamp,
    /// The time of day then.
    pub(crate) wall: Timestamp,
    pub(crate) state: BaselineState,
}

/// What is known of a resource when a read begins.
#[derive(Debug)]
pub(crate) enum BaselineState {
    /// The register failed.
    Unavailable,
    /// The register's record.
    Record(Box<Record>),
    /// The remembered response represents the current version, at this revision of the record.
    Current(Arc<RememberedHead>, Revision),
    /// The register wasn't asked. The response may be this version, whose date is known.
    Dated(Arc<DatedVersion>),
}

impl ReadContext {
    /// Returns the context, and the head for the inner service: GET without conditions. `Range` is passed on, since a
    /// service that can seek does less work for a part than for the whole.
    pub(crate) fn new(
        shared: Arc<LayerState>,
        key: Key,
        baseline: ReadBaseline,
        mut head: Parts,
    ) -> (Self, Parts) {
        let request = ReadRequest {
            key,
            is_head: head.method == Method::HEAD,
            query: head.uri.query().map(Box::from),
            headers: head.headers.clone(),
            conditions: Preconditions::from_headers(&head.headers),
            is_shareable: shared.config.is_shareable(&head),
        };
        head.method = Method::GET;
        strip_conditions(&mut head.headers);
        if request.is_head {
            head.headers.remove(RANGE);
        }
        (
            Self {
                shared,
                request,
                baseline,
            },
            head,
        )
    }
}

impl ReadRequest {
    /// Returns the variant that this request selects from a resource with this `Vary`.
    pub(crate) fn select(&self, vary: &VaryFields) -> Option<Variant> {
        vary.select(self.query.as_deref(), &self.headers)
    }

    /// Returns `true` if the response depends on what the client already has.
    pub(crate) fn is_conditional(&self) -> bool {
        !self.conditions.is_empty() || self.headers.contains_key(IF_RANGE)
    }
}

/// Removes the conditions, so the inner service sends the whole representation, with its tag.
pub(crate) fn strip_conditions(headers: &mut HeaderMap) {
    if headers
        .keys()
        .any(|name| CONDITIONAL_HEADERS.contains(name))
    {
        for name in CONDITIONAL_HEADERS {
            headers.remove(name);
        }
    }
}
