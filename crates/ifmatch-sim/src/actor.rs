//! Those who take part: what each wants, and how far it is.

use http::Method;
use http::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Observation, Observed};
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Snapshot, Token, Variant};

/// What the resource holds: the number of the actor that wrote it last, none if it is absent.
pub type Bytes = Option<u8>;

/// What an actor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Reads the resource, then writes with `If-Match` and the tag it got.
    Edit,
    /// Writes with `If-None-Match: *`.
    Create,
    /// Writes without a condition.
    Overwrite,
    /// Reads, and reads once more when it is done, from memory where that is allowed.
    Read,
    /// Acquires the lease, writes under it, and gives it back.
    Hold,
    /// Acquires the lease, renews it, perhaps late, and writes under it.
    Return,
    /// Breaks the lease.
    Break,
}

/// How far an actor is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// About to load the record before its read.
    LoadForRead,
    /// About to read the resource.
    Read(Option<Snapshot>),
    /// About to load the record, to put in what it saw.
    LoadToObserve(Option<Snapshot>, Bytes),
    /// About to swap in what it saw.
    Observe(Box<Record>, Option<Snapshot>, Bytes),
    /// About to load the record, to begin its write.
    LoadToBegin(Option<Seen>),
    /// About to swap in the begin of its write.
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
    /// Gone.
    Crashed,
}

/// What a probe saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// When the probe began.
    pub snapshot: Snapshot,
    /// What it saw.
    pub bytes: Bytes,
}

/// The permit that an actor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The permit.
    pub token: Token,
    /// Its end.
    pub deadline: Timestamp,
    /// The end of the lease that it was given under, as its holder knew it.
    pub lease_end: Option<Timestamp>,
}

/// A lease operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// For one tick, under the actor's own id.
    Acquire,
    /// For another tick.
    Renew,
    /// Gives it back.
    Release,
    /// At once.
    Break,
}

/// The lease as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Its end, as it was told.
    pub end: Timestamp,
    /// What the resource held when the actor last came to know that the lease is its own, or wrote.
    pub bytes: Bytes,
    /// Whether somebody has broken it, which the holder is not told.
    pub broken: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It took effect.
    Commit,
    /// It did not.
    Abort,
    /// Nobody knows.
    Doubt,
}

/// An actor: what it wants, how far it is, what it has read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// What it wants.
    pub task: Task,
    /// How far it is.
    pub step: Step,
    /// What it read first.
    pub base: Bytes,
    /// The version that its memory holds, as a reader's.
    pub memory: Option<(Revision, Bytes)>,
    /// The lease that it believes to have, as a holder.
    pub held: Option<Held>,
}

impl Actor {
    /// An actor at its beginning.
    pub fn new(task: Task) -> Self {
        let step = match task {
            Task::Edit | Task::Read => Step::LoadForRead,
            Task::Create | Task::Overwrite => Step::LoadToBegin(None),
            Task::Hold | Task::Return => Step::LoadToLease(Operation::Acquire, None),
            Task::Break => Step::LoadToLease(Operation::Break, None),
        };
        Self { task, step, base: None, memory: None, held: None }
    }

    /// The conditions of its write.
    pub fn preconditions(&self) -> Preconditions {
        let mut headers = HeaderMap::new();
        match (self.task, self.base) {
            (Task::Edit, Some(writer)) => headers.insert(IF_MATCH, tag(writer).to_header()),
            (Task::Edit, None) | (Task::Create, _) => headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*")),
            _ => None,
        };
        Preconditions::from_headers(&headers)
    }

    /// Whether its write may follow on what the resource holds.
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

/// The tag of an actor's bytes.
pub fn tag(writer: u8) -> EntityTag {
    ifmatch_core::digest::ContentHash::of(&[writer]).content_tag()
}

/// What a read of these bytes tells the record.
pub fn observed(snapshot: Snapshot, bytes: Bytes, authority: ifmatch_core::command::Authority) -> Observed {
    let observation = match bytes {
        Some(writer) => Observation::Present { variant: Variant::only(), tag: Some(tag(writer)), last_modified: None },
        None => Observation::Absent,
    };
    Observed::new(snapshot, observation, authority)
}
