//! What the inner service is told about the write that it carries out.

use ifmatch_core::EntityTag;
use ifmatch_core::command::Grant;
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::State;

/// The permit to write, in the extensions of the request that the inner service gets.
///
/// A handler that writes to a store of its own can push the condition down with it: hand the fencing token to a
/// store that refuses late writers, or make the current tag the condition of the store's own write.
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

    /// A number larger than that of every earlier permit for this resource that the register remembers.
    ///
    /// With a durable register, such as redb, it never goes back. An in-memory register does not know the permits from
    /// before a restart. Its numbers start at the time of day, so they go back if the clock was set back. A store that
    /// refuses smaller tokens then refuses every write until the clock has caught up.
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// The fencing token of the lease presented with the request, or `None` without a lease. It is the same for all
    /// writes of one holder, and larger than that of every earlier lease that the register remembers, see
    /// [`fencing_token`](Self::fencing_token). If the lease protects anything besides this resource, pass the token to
    /// the store of that data.
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

    /// When the handler will be cancelled.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The state that the conditions were evaluated against. It is [`State::Unknown`] where the request had none and
    /// nobody had looked before.
    pub fn current(&self) -> &State {
        &self.current
    }

    /// The tags of the current representations: none where the resource is absent, unknown or has no tag.
    pub fn current_tags(&self) -> &[EntityTag] {
        self.current.version().map_or(&[], |version| version.tags())
    }
}
