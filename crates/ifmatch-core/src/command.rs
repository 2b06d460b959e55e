//! The commands on a record, what comes of them, and the refusals.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::date::{HttpDate, Timestamp};
use crate::digest::ContentHash;
use crate::lease::{Lease, LeaseAction, LeaseConflict, LeaseFailure, LeaseReceipt, LeaseUse};
use crate::precondition::{Precondition, Preconditions};
use crate::record::{Receipt, Record, RequestId, Revision, Snapshot, State, Token, Variant};
use crate::tag::EntityTag;

/// One step on a record. A write through a service takes `Begin` and then one of `Commit`, `Abort` and `Doubt`; a
/// write whose content is durable beforehand, under a name of its own, takes `Write` alone.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// Asks for the permit to write.
    Begin(Begin<'a>),
    /// The write took effect.
    Commit(Commit),
    /// The write definitely did not take effect.
    Abort(Token),
    /// Nobody knows whether the write took effect, or will.
    Doubt(Doubt),
    /// A read, or a probe, saw this.
    Observe(Observed),
    /// Evaluates the preconditions and writes, in one step.
    Write(Write<'a>),
    /// Acquires, renews, changes, releases or breaks the lease.
    Lease(LeaseOperation<'a>),
}

/// Asks for the permit to write.
#[derive(Clone, Debug)]
pub struct Begin<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// The conditions of the request.
    pub preconditions: &'a Preconditions,
    /// The lease that the request came with. Under one, the permit ends when the lease does.
    pub lease: LeaseUse,
    /// What a probe saw just before.
    pub observed: Option<Observed>,
    /// Who knows the version.
    pub authority: Authority,
    /// A number drawn at random for this grant.
    pub nonce: u64,
    /// How long the write may take.
    pub ttl: Duration,
}

/// The write took effect.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The permit.
    pub token: Token,
    /// What the resource is now.
    pub content: Content,
}

/// Nobody knows whether the write took effect, or will.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// The permit.
    pub token: Token,
    /// How long an effect may still come. The permit lasts as long, though never beyond its deadline.
    pub grace: Duration,
}

/// What a read saw, and when it began.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The beginning of the read.
    pub snapshot: Snapshot,
    /// What it saw.
    pub observation: Observation,
    /// Who knows the version.
    pub authority: Authority,
}

/// Who knows the current version of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// The register: all writes come through it, so what it says can be relied on.
    Register,
    /// The resource alone: it may change behind the register's back, so only a probe tells, and only of the
    /// representation that it saw.
    #[default]
    Resource,
}

/// What a read saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The resource does not exist.
    Absent,
    /// The resource exists.
    Present {
        /// The representation that was read.
        variant: Variant,
        /// Its tag, none where it has no validator.
        tag: Option<EntityTag>,
        /// The date that the resource itself gave.
        last_modified: Option<HttpDate>,
    },
}

/// Evaluates the preconditions and writes, in one step.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// The conditions of the request.
    pub preconditions: &'a Preconditions,
    /// The lease that the request came with.
    pub lease: LeaseUse,
    /// What the resource becomes. Making an absent resource absent is [`Refusal::NotFound`].
    pub content: Content,
    /// The generation that the content was derived from, where it was: any other is [`Refusal::Stale`].
    pub based_on: Option<Revision>,
    /// The request's identity: a retry gets the first answer again.
    pub request: Option<RequestId>,
    /// A number drawn at random for this write.
    pub nonce: u64,
}

/// Acquires, renews, changes, releases or breaks the lease. The version stays what it is.
#[derive(Clone, Debug)]
pub struct LeaseOperation<'a> {
    /// What to do.
    pub action: LeaseAction,
    /// The conditions of the request.
    pub preconditions: &'a Preconditions,
    /// What a probe saw just before.
    pub observed: Option<Observed>,
    /// Who knows the version.
    pub authority: Authority,
    /// The request's identity, its action and ids included: a retry gets the first answer again, unless others have
    /// changed the lease since.
    pub request: Option<RequestId>,
    /// A number drawn at random for this operation.
    pub nonce: u64,
}

/// What a write leaves at the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A representation with this tag.
    Tagged {
        /// The representation that was written.
        variant: Variant,
        /// Its tag.
        tag: EntityTag,
    },
    /// A body with this hash, whose tag shall change with every write; and what the application binds to it.
    Hashed {
        /// The hash of the body.
        hash: ContentHash,
        /// The application's own data.
        payload: Bytes,
    },
    /// Something, or nothing: the next reader finds out.
    Unknown,
    /// Nothing.
    Absent,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The permit to write.
    Granted(Grant),
    /// The write is part of the record.
    Written(Receipt),
    /// The write was part of the record before: this is a retry.
    Replayed(Receipt),
    /// The permit is given back.
    Released,
    /// The observation is part of the record.
    Observed,
    /// The lease operation is part of the record, or was before.
    Leased(LeaseReceipt),
    /// The command was not carried out.
    Refused(Refusal),
}

/// The permit to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What to show at the end.
    pub token: Token,
    /// When the permit ends by itself.
    pub deadline: Timestamp,
    /// The state that the conditions were evaluated against.
    pub current: State,
    /// The lease that the write came with.
    pub lease: Option<Lease>,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A condition is false: 412.
    PreconditionFailed {
        /// The condition.
        precondition: Precondition,
        /// The current tag.
        current: Option<EntityTag>,
    },
    /// Another write is in flight: wait until it ends, at the latest until its deadline.
    InFlight {
        /// When that write's permit ends by itself.
        deadline: Timestamp,
    },
    /// The conditions cannot be evaluated, or nothing leased, before a probe has told the current state.
    ProbeFirst,
    /// There is nothing to delete, or to lease: 404.
    NotFound,
    /// The resource's lease does not allow it: 412.
    Lease(LeaseFailure),
    /// The lease operation is not possible in the lease's state: 409.
    LeaseConflict(LeaseConflict),
    /// The permit is lost, or the record has changed since the read began.
    Stale,
}

/// The record after a command, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The record to swap in; none where nothing changes.
    pub next: Option<Record>,
    /// What came of the command, once the swap succeeded.
    pub outcome: Outcome,
}
