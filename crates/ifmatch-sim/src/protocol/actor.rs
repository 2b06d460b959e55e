//! The actors: their tasks and their progress.

use http::Method;
use http::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Observation, Observed};
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Snapshot, Token, Variant};

/// The content of the resource: the number of the actor that wrote it last, or `None` if it is absent.
pub type Bytes = Option<u8>;

/// The task of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Reads the resource, then writes with `If-Match` and the tag of the read.
    Edit,
    /// Writes with `If-None-Match: *`.
    Create,
    /// Writes without a condition.
    Overwrite,
    /// Reads twice, the second time from memory if permitted.
    Read,
    /// Acquires the lease, writes under it, and releases it.
    Hold,
    /// Acquires the lease, renews it, perhaps late, and writes under it.
    Return,
    /// Breaks the lease.
    Break,
}

/// The next step of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// About to load the record before its read.
    LoadForRead,
    /// About to read the resource.
    Read(Option<Snapshot>),
    /// About to load the record, to record the result of its read.
    LoadToObserve(Option<Snapshot>, Bytes),
    /// About to swap in the result of its read.
    Observe(Box<Record>, Option<Snapshot>, Bytes),
    /// About to load the record, to begin its write.
    LoadToBegin(Option<Seen>),
    /// About to swap in the start of its write.
    Begin(Box<Record>, Option<Seen>),
    /// About to probe the resource, having loaded the record.
    Probe(Option<Snapshot>),
    /// About to write to the resource.
    Write(Grant),
    /// About to load the record, to end its write.
    LoadToEnd(Grant, End),
    /// About to swap in the end of its write.
    End(Box<Record>, Grant, End),
    /// About to load the record, for a lease operation.
    LoadToLease(Operation, Option<Seen>),
    /// About to swap in a lease operation.
    Lease(Box<Record>, Operation, Option<Seen>),
    /// About to probe the resource before a lease operation.
    ProbeToLease(Operation, Option<Snapshot>),
    /// Done, or refused.
    Done,
    /// Crashed.
    Crashed,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The snapshot at the start of the probe.
    pub snapshot: Snapshot,
    /// The resource's content.
    pub bytes: Bytes,
}

/// The permit that an actor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The permit's token.
    pub token: Token,
    /// The permit's deadline.
    pub deadline: Timestamp,
    /// The end of the lease that the permit was granted under, as known to its holder.
    pub lease_end: Option<Timestamp>,
}

/// A lease operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Acquires the lease for one tick, with the actor's id.
    Acquire,
    /// Renews the lease for another tick.
    Renew,
    /// Releases the lease.
    Release,
    /// Breaks the lease immediately.
    Break,
}

/// A lease as known to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The end of the lease in the last response.
    pub end: Timestamp,
    /// The content of the resource when the holder last acquired or renewed the lease, or wrote.
    pub bytes: Bytes,
    /// `true` if another actor has broken the lease, which the holder doesn't know.
    pub broken: bool,
}

/// The end of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The write took effect.
    Commit,
    /// The write didn't take effect.
    Abort,
    /// The effect is unknown.
    Doubt,
}

/// An actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// Its task.
    pub task: Task,
    /// Its next step.
    pub step: Step,
    /// The content of its first read.
    pub base: Bytes,
    /// The version in the memory of a reader.
    pub memory: Option<(Revision, Bytes)>,
    /// The lease that a holder believes it has.
    pub held: Option<Held>,
}

impl Actor {
    /// Creates an actor at its first step.
    pub fn new(task: Task) -> Self {
        let step = match task {
            Task::Edit | Task::Read => Step::LoadForRead,
            Task::Create | Task::Overwrite => Step::LoadToBegin(None),
            Task::Hold | Task::Return => Step::LoadToLease(Operation::Acquire, None),
            Task::Break => Step::LoadToLease(Operation::Break, None),
        };
        Self {
            task,
            step,
            base: None,
            memory: None,
            held: None,
        }
    }

    /// Returns the preconditions of its write.
    pub fn preconditions(&self) -> Preconditions {
        let mut headers = HeaderMap::new();
        match (self.task, self.base) {
            (Task::Edit, Some(writer)) => headers.insert(IF_MATCH, tag(writer).to_header()),
            (Task::Edit, None) | (Task::Create, _) => {
                headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"))
            }
            _ => None,
        };
        Preconditions::from_headers(&headers)
    }

    /// Returns `true` if its write may replace this content.
    pub fn may_follow(&self, bytes: Bytes) -> bool {
        match self.task {
            Task::Edit => bytes == self.base,
            Task::Create => bytes.is_none(),
            Task::Overwrite | Task::Hold | Task::Return => true,
            Task::Read | Task::Break => false,
        }
    }
}

/// The method of every write in the model.
pub const METHOD: Method = Method::PUT;

/// Returns the tag of an actor's bytes.
pub fn tag(writer: u8) -> EntityTag {
    ifmatch_core::digest::ContentHash::of(&[writer]).content_tag()
}

/// Returns the observation of a read of these bytes.
pub fn observed(
    snapshot: Snapshot,
    bytes: Bytes,
    authority: ifmatch_core::command::Authority,
) -> Observed {
    let observation = match bytes {
        Some(writer) => Observation::Present {
            variant: Variant::only(),
            tag: Some(tag(writer)),
            last_modified: None,
        },
        None => Observation::Absent,
    };
    Observed::new(snapshot, observation, authority)
}
