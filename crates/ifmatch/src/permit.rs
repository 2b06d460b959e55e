//! The permit that the inner service receives with a write.

use ifmatch_core::EntityTag;
use ifmatch_core::command::Grant;
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::State;

/// The permit to write, an extension of the request that the inner service receives.
///
/// A handler with its own store can pass the condition on to that store: as the fencing token, if the store rejects late
/// writers, or as the current tag, if the store supports conditional writes.
///
/// ```
/// use http::Request;
/// use ifmatch::Permit;
///
/// fn handle(request: &Request<()>) -> Option<u64> {
///     request.extensions().get::<Permit>().map(Permit::fencing_token)
/// }
/// # assert_eq!(handle(&Request::new(())), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    fencing_token: u64,
    deadline: Timestamp,
    current: State,
    lease_token: Option<u64>,
}

impl Permit {
    pub(crate) fn new(grant: &Grant, deadline: Timestamp) -> Self {
        let lease_token = grant.lease.map(|lease| lease.token().get());
        Self { fencing_token: grant.token.revision.get(), deadline, current: grant.current.clone(), lease_token }
    }

    /// Returns a number larger than that of every earlier permit for this resource that the register remembers.
    ///
    /// With a durable register, such as redb, it never decreases. An in-memory register does not know the permits from
    /// before a restart: its numbers start at the time of day, so they decrease if the clock was set back. A store that
    /// rejects smaller tokens then rejects every write until the clock has caught up.
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// Returns the fencing token of the lease presented with the request, or `None` without a lease.
    ///
    /// It is the same for all writes of one holder, and larger than that of every earlier lease that the register
    /// remembers; see [`fencing_token`](Self::fencing_token). If the lease protects anything besides this resource, pass
    /// the token to the store of that data.
    ///
    /// ```
    /// use http::Request;
    /// use ifmatch::Permit;
    ///
    /// fn holder(request: &Request<()>) -> Option<u64> {
    ///     request.extensions().get::<Permit>().and_then(Permit::lease_token)
    /// }
    /// # assert_eq!(holder(&Request::new(())), None);
    /// ```
    pub fn lease_token(&self) -> Option<u64> {
        self.lease_token
    }

    /// Returns the time at which the handler will be cancelled.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Returns the state that the conditions were evaluated on: [`State::Unknown`] if the request had no conditions and no
    /// earlier request has seen the resource.
    pub fn current(&self) -> &State {
        &self.current
    }

    /// Returns the tags of the current representations: none if the resource is absent, unknown or untagged.
    pub fn current_tags(&self) -> &[EntityTag] {
        self.current.version().map_or(&[], |version| version.tags())
    }
}
