//! Commands on a record, their outcomes and refusals.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::date::{HttpDate, Timestamp};
use crate::digest::ContentHash;
use crate::lease::{Lease, LeaseAction, LeaseConflict, LeaseFailure, LeaseReceipt, LeaseUse};
use crate::precondition::{Precondition, Preconditions};
use crate::record::{Receipt, Record, RequestId, Revision, Snapshot, State, Token, Variant};
use crate::tag::EntityTag;

/// One step on a record.
///
/// A write through a service takes `Begin`, then one of `Commit`, `Abort` and `Doubt`. A write of content that is
/// already durable under a unique name takes a single `Write`.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// Requests a permit to write.
    Begin(Begin<'a>),
    /// The write took effect.
    Commit(Commit),
    /// The write definitely didn't take effect.
    Abort(Token),
    /// The write may have taken effect, or still may.
    Doubt(Doubt),
    /// Extends a permit that hasn't ended.
    Renew(Renew),
    /// The resource may have changed without a permit: its state is unknown from now on. Doesn't wait for a write in
    /// flight. The value is a random number for this command.
    Invalidate(u64),
    /// Records the result of a read or a probe.
    Observe(Observed),
    /// Evaluates the preconditions and writes, in one step.
    Write(Write<'a>),
    /// Acquires, renews, changes, releases or breaks the lease.
    Lease(LeaseOperation<'a>),
}

/// Requests a permit to write.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Begin<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The request's preconditions.
    pub preconditions: &'a Preconditions,
    /// The lease that the request names. The permit ends no later than this lease.
    pub lease: LeaseUse,
    /// The result of a probe made just before.
    pub observed: Option<Observed>,
    /// The authority on the current version.
    pub authority: Authority,
    /// A random number for this grant.
    pub nonce: u64,
    /// Maximum duration of the write.
    pub ttl: Duration,
}

impl<'a> Begin<'a> {
    /// Creates a request for a permit that lasts for `ttl`, without a lease or a probe, with the resource as the
    /// authority.
    pub fn new(
        method: &'a Method,
        preconditions: &'a Preconditions,
        nonce: u64,
        ttl: Duration,
    ) -> Self {
        let (lease, authority) = (LeaseUse::default(), Authority::default());
        Self {
            method,
            preconditions,
            lease,
            observed: None,
            authority,
            nonce,
            ttl,
        }
    }

    /// Sets the lease that the request names.
    #[must_use]
    pub fn with_lease(self, lease: LeaseUse) -> Self {
        Self { lease, ..self }
    }

    /// Sets the result of a probe made just before.
    #[must_use]
    pub fn with_observed(self, observed: Option<Observed>) -> Self {
        Self { observed, ..self }
    }

    /// Sets the authority on the current version.
    #[must_use]
    pub fn with_authority(self, authority: Authority) -> Self {
        Self { authority, ..self }
    }
}

/// The write took effect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Commit {
    /// The permit's token.
    pub token: Token,
    /// The resource's new content.
    pub content: Content,
    /// `true` if the content counts as unknown if another command has changed the record since the grant.
    pub unless_disturbed: bool,
}

impl Commit {
    /// Creates the command that ends a successful write.
    pub fn new(token: Token, content: Content) -> Self {
        Self {
            token,
            content,
            unless_disturbed: false,
        }
    }

    /// Records the content only if no other command has changed the record since the grant, and otherwise an unknown
    /// state. For content that was read after the write: a [`Command::Invalidate`] says that another change may have
    /// come in between.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use http::Method;
    /// use ifmatch_core::EntityTag;
    /// use ifmatch_core::command::{Begin, Command, Commit, Content, Outcome};
    /// use ifmatch_core::date::Timestamp;
    /// use ifmatch_core::precondition::Preconditions;
    /// use ifmatch_core::record::{Record, State, Variant};
    ///
    /// let now = Timestamp::from_micros(1_800_000_000_000_000);
    /// let begin = Begin::new(&Method::PUT, &Preconditions::NONE, 7, Duration::from_secs(30));
    /// let begun = Record::unknown().apply(&Command::Begin(begin), now);
    /// let Outcome::Granted(grant) = begun.outcome else { panic!("no other writer") };
    /// let disturbed = begun.next.unwrap().apply(&Command::Invalidate(8), now).next.unwrap();
    /// let content = Content::Tagged { variant: Variant::only(), tag: EntityTag::strong("v2").unwrap() };
    /// let commit = Commit::new(grant.token, content).unless_disturbed();
    /// let after = disturbed.apply(&Command::Commit(commit), now).next.unwrap();
    /// assert_eq!(after.state(now), &State::Unknown);
    /// ```
    #[must_use]
    pub fn unless_disturbed(self) -> Self {
        Self {
            unless_disturbed: true,
            ..self
        }
    }
}

/// Extends a permit that hasn't ended. The fencing token stays the same.
///
/// ```
/// use std::time::Duration;
///
/// use http::Method;
/// use ifmatch_core::command::{Begin, Command, Outcome, Renew};
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_core::lease::LeaseUse;
/// use ifmatch_core::precondition::Preconditions;
/// use ifmatch_core::record::Record;
///
/// let (now, ttl) = (Timestamp::from_micros(1_800_000_000_000_000), Duration::from_secs(30));
/// let begun = Record::unknown().apply(&Command::Begin(Begin::new(&Method::PUT, &Preconditions::NONE, 7, ttl)), now);
/// let Outcome::Granted(grant) = begun.outcome else { panic!("no other writer") };
/// let later = now.saturating_add(Duration::from_secs(20));
/// let renew = Renew { token: grant.token, ttl, lease: LeaseUse::default() };
/// let renewed = begun.next.unwrap().apply(&Command::Renew(renew), later);
/// let Outcome::Granted(again) = renewed.outcome else { panic!("the permit was valid") };
/// assert_eq!((again.token, again.deadline), (grant.token, later.saturating_add(ttl)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Renew {
    /// The permit's token.
    pub token: Token,
    /// Maximum duration of the write from now on.
    pub ttl: Duration,
    /// The lease that the write named. The permit ends no later than this lease.
    pub lease: LeaseUse,
}

/// The write may have taken effect, or still may.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Doubt {
    /// The permit's token.
    pub token: Token,
    /// Time during which the write may still take effect. The permit lasts as long, but not beyond its deadline.
    pub grace: Duration,
}

impl Doubt {
    /// Creates the command that ends a write with an unknown effect.
    pub fn new(token: Token, grace: Duration) -> Self {
        Self { token, grace }
    }
}

/// The result of a read, and when the read began.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observed {
    /// The record's snapshot at the beginning of the read.
    pub snapshot: Snapshot,
    /// The result of the read.
    pub observation: Observation,
    /// The authority on the current version.
    pub authority: Authority,
}

impl Observed {
    /// Creates the result of a read that began at `snapshot`.
    pub fn new(snapshot: Snapshot, observation: Observation, authority: Authority) -> Self {
        Self {
            snapshot,
            observation,
            authority,
        }
    }
}

/// The authority on the current version of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// The register: all writes go through it, so its state is current.
    Register,
    /// The resource itself: it may change without the register, so only a probe shows its state, and only for the
    /// probed representation.
    #[default]
    Resource,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The resource doesn't exist.
    Absent,
    /// The resource exists.
    Present {
        /// The representation that was read.
        variant: Variant,
        /// Its tag, or `None` if it has no validator.
        tag: Option<EntityTag>,
        /// The date given by the resource itself.
        last_modified: Option<HttpDate>,
    },
}

/// Evaluates the preconditions and writes, in one step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Write<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The request's preconditions.
    pub preconditions: &'a Preconditions,
    /// The lease that the request names.
    pub lease: LeaseUse,
    /// The new content of the resource. Deleting an absent resource is [`Refusal::NotFound`].
    pub content: Content,
    /// The generation that the content was derived from, if any. If it is no longer current, the write is
    /// [`Refusal::Stale`].
    pub based_on: Option<Revision>,
    /// The identity of the request. A retry with the same identity gets the first response again.
    pub request: Option<RequestId>,
    /// A random number for this write.
    pub nonce: u64,
}

impl<'a> Write<'a> {
    /// Creates a write without a lease or a request identity.
    pub fn new(
        method: &'a Method,
        preconditions: &'a Preconditions,
        content: Content,
        nonce: u64,
    ) -> Self {
        Self {
            method,
            preconditions,
            lease: LeaseUse::default(),
            content,
            based_on: None,
            request: None,
            nonce,
        }
    }

    /// Sets the lease that the request names.
    #[must_use]
    pub fn with_lease(self, lease: LeaseUse) -> Self {
        Self { lease, ..self }
    }

    /// Sets the generation that the content was derived from.
    #[must_use]
    pub fn with_based_on(self, based_on: Option<Revision>) -> Self {
        Self { based_on, ..self }
    }

    /// Sets the request's identity.
    #[must_use]
    pub fn with_request(self, request: Option<RequestId>) -> Self {
        Self { request, ..self }
    }
}

/// Acquires, renews, changes, releases or breaks the lease. Doesn't change the version.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseOperation<'a> {
    /// The operation.
    pub action: LeaseAction,
    /// The request's preconditions.
    pub preconditions: &'a Preconditions,
    /// The result of a probe made just before.
    pub observed: Option<Observed>,
    /// The authority on the current version.
    pub authority: Authority,
    /// The identity of the request, including its action and ids. A retry with the same identity gets the first response
    /// again, unless the lease has changed since.
    pub request: Option<RequestId>,
    /// A random number for this operation.
    pub nonce: u64,
}

impl<'a> LeaseOperation<'a> {
    /// Creates an operation without a probe or a request identity, with the resource as the authority.
    pub fn new(action: LeaseAction, preconditions: &'a Preconditions, nonce: u64) -> Self {
        Self {
            action,
            preconditions,
            observed: None,
            authority: Authority::default(),
            request: None,
            nonce,
        }
    }

    /// Sets the result of a probe made just before.
    #[must_use]
    pub fn with_observed(self, observed: Option<Observed>) -> Self {
        Self { observed, ..self }
    }

    /// Sets the authority on the current version.
    #[must_use]
    pub fn with_authority(self, authority: Authority) -> Self {
        Self { authority, ..self }
    }

    /// Sets the request's identity.
    #[must_use]
    pub fn with_request(self, request: Option<RequestId>) -> Self {
        Self { request, ..self }
    }
}

/// The content of a resource after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A representation with this tag.
    Tagged {
        /// The representation that was written.
        variant: Variant,
        /// Its tag.
        tag: EntityTag,
    },
    /// A body with this hash. Its tag changes with every write.
    Hashed {
        /// The body's hash.
        hash: ContentHash,
        /// Application data stored with the version.
        payload: Bytes,
    },
    /// The version as it is, with other application data. Its tags, generation and date stay the same.
    /// [`Refusal::NotFound`] if there is no version.
    Kept {
        /// Application data stored with the version.
        payload: Bytes,
    },
    /// Unknown: the next read determines it.
    Unknown,
    /// None: the resource was deleted.
    Absent,
}

/// A command's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A permit to write was granted, or extended.
    Granted(Grant),
    /// The write was recorded.
    Written(Receipt),
    /// The write was recorded earlier: the command is a retry.
    Replayed(Receipt),
    /// The permit was returned.
    Released,
    /// The observation was recorded, or the state is unknown from now on, as the command said.
    Observed,
    /// The lease operation was recorded, now or earlier.
    Leased(LeaseReceipt),
    /// The command was refused.
    Refused(Refusal),
}

/// A permit to write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The token to present when the write ends.
    pub token: Token,
    /// When the permit expires.
    pub deadline: Timestamp,
    /// The state that the preconditions were evaluated against.
    pub current: State,
    /// The lease that the write named.
    pub lease: Option<Lease>,
}

/// The reason why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A precondition is false: 412.
    PreconditionFailed {
        /// The precondition.
        precondition: Precondition,
        /// The current tag.
        current: Option<EntityTag>,
    },
    /// Another write is in flight: wait until it ends, or until its deadline.
    InFlight {
        /// When that write's permit expires.
        deadline: Timestamp,
    },
    /// The preconditions can't be evaluated, or the lease granted, before a probe has determined the current state.
    ProbeFirst,
    /// The resource to delete or to lease doesn't exist: 404.
    NotFound,
    /// The resource's lease doesn't permit the command: 412.
    Lease(LeaseFailure),
    /// The lease operation conflicts with the state of the lease: 409.
    LeaseConflict(LeaseConflict),
    /// The permit was lost, or the record has changed since the read began.
    Stale,
}

/// A command's effect on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The record before.
    pub before: Record,
    /// The record after. The same if nothing changed.
    pub after: Record,
    /// The command's outcome.
    pub outcome: Outcome,
}

/// The record after a command, and the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// The record to swap in, or `None` if nothing changes.
    pub next: Option<Record>,
    /// The outcome of the command once the swap has succeeded.
    pub outcome: Outcome,
}

impl Transition {
    /// Creates a refusal, which leaves the record unchanged.
    pub fn refused(refusal: Refusal) -> Self {
        Self {
            next: None,
            outcome: Outcome::Refused(refusal),
        }
    }
}
