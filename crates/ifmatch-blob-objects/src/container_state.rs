//! A container's record as a state machine: what it says, the swaps that change it, and the steps of its deletion. Pure: `mod.rs`
//! and `delete.rs` do the I/O.
//!
//! ```text
//!             create               close, if it seems empty           begin
//!   Gone ───────────────▶ Known ─────────────────────────▶ Closing ─────────▶ Deleting
//!    ▲                     │  ▲          open                │                  │  ▲
//!    │                     │  └──────────────────────────────┘                  │  │
//!    │                     └───────────────────── begin ────────────────────────┼──┘
//!    └─────────────────────────────────── end ──────────────────────────────────┘
//! ```
//!
//! A container of the same name can be created and deleted repeatedly; each has an incarnation, which its objects carry. An object
//! of an older incarnation isn't a blob: it is a late write overtaken by a deletion. So no write slips past a deletion,
//! even if the network or a listing of the register reorders them.

use std::collections::BTreeMap;

use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use ifmatch_core::command::Content;
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::record::{Record, Revision, State, Version};
use serde::{Deserialize, Serialize};

use crate::attributes::StoredVersion;

/// The objects in a container's folder that are its blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerMembers(Option<Revision>);

impl ContainerMembers {
    /// Objects of this incarnation and later ones.
    pub(crate) fn since(oldest: Revision) -> Self {
        Self(Some(oldest))
    }

    /// No objects: the container is being deleted.
    pub(crate) const NONE: Self = Self(None);

    /// All objects.
    pub(crate) const ALL: Self = Self(Some(Revision::NONE));

    /// Returns `true` if an object is a blob of the container. Objects without an incarnation are: another program
    /// wrote them, or the store keeps no metadata.
    pub(crate) fn contain(&self, object: &StoredVersion) -> bool {
        self.0.is_some()
            && object
                .incarnation
                .is_none_or(|incarnation| self.include(incarnation))
    }

    /// Returns `true` if objects of this incarnation are blobs of the container.
    pub(crate) fn include(&self, incarnation: Revision) -> bool {
        self.0.is_some_and(|oldest| incarnation >= oldest)
    }

    /// Returns `true` if all objects are blobs.
    pub(crate) fn are_all(&self) -> bool {
        *self == Self::ALL
    }
}

/// A container that exists in the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveContainer {
    /// Revision that created the container. Each container of this name has a larger one than the container before.
    pub(crate) incarnation: Revision,
    /// Oldest incarnation with blobs in the container: its own, unless it was adopted with existing objects.
    pub(super) since: Revision,
}

impl LiveContainer {
    /// Returns the objects that are blobs of the container.
    pub(crate) fn members(&self) -> ContainerMembers {
        ContainerMembers::since(self.since)
    }
}

/// The state of a container in the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerState {
    /// The container exists.
    Known(LiveContainer),
    /// The container exists and takes no writes while a deleter finds out if it is empty. Its turn ends at this time.
    Closing(LiveContainer, Timestamp),
    /// The container is being deleted. The current deleter's turn ends at this time.
    Deleting(Timestamp),
    /// The container doesn't exist, unless its folder contains objects of this incarnation or a later one.
    Gone(Revision),
}

/// The purpose of a request that deletes a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionPurpose {
    /// To delete it with its blobs.
    All,
    /// To delete it if it has none.
    IfEmpty,
    /// To end what another deleter has begun, once its turn is over.
    Finish,
}

/// The next move of a deleter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleterMove {
    /// Takes the turn, with a swap that marks the container.
    Take(DeletionMark),
    /// Opens the container, with a swap that removes the mark.
    Open,
    /// Waits for the end of another deleter's turn.
    Wait,
    /// Gives the container a record, if its folder has blobs.
    Adopt,
    /// Nothing.
    Rest,
}

impl ContainerState {
    /// Reads a container's record.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unreadable`], as for [`ContainerPayload::of`].
    pub(crate) fn of(record: &Record, now: Timestamp) -> Result<Self, StoreError> {
        let version = match record.state(now) {
            State::Present(version) => version,
            State::Absent => return Ok(Self::Gone(record.revision())),
            State::Unknown => return Ok(Self::Gone(Revision::NONE)),
        };
        let payload = ContainerPayload::of(version)?;
        let home = payload.home(version);
        Ok(match (payload.deleting, payload.closing) {
            (Some(until), _) => DeletionMark::Deleting.registered(home, until),
            (None, Some(until)) => DeletionMark::Closing.registered(home, until),
            (None, None) => Self::Known(home),
        })
    }

    /// Returns `true` if the container exists, so its blobs can be read.
    pub(crate) fn exists(&self) -> bool {
        matches!(self, Self::Known(_) | Self::Closing(..))
    }

    /// Returns the objects that are blobs of the container.
    pub(crate) fn members(&self) -> ContainerMembers {
        match self {
            Self::Known(home) | Self::Closing(home, _) => home.members(),
            Self::Deleting(_) => ContainerMembers::NONE,
            Self::Gone(since) => ContainerMembers::since(*since),
        }
    }

    /// Returns what a deleter does next. A mark that outlasts its turn is one of a deleter that stopped.
    pub(crate) fn deletion(self, purpose: DeletionPurpose, now: Timestamp) -> DeleterMove {
        let is_taken =
            matches!(self, Self::Closing(_, until) | Self::Deleting(until) if now < until);
        match (self, purpose) {
            (_, DeletionPurpose::Finish) if is_taken => DeleterMove::Rest,
            _ if is_taken => DeleterMove::Wait,
            (Self::Closing(..), DeletionPurpose::Finish) => DeleterMove::Open,
            (Self::Known(_) | Self::Gone(_), DeletionPurpose::Finish) => DeleterMove::Rest,
            (Self::Deleting(_), _) | (Self::Known(_) | Self::Closing(..), DeletionPurpose::All) => {
                DeleterMove::Take(DeletionMark::Deleting)
            }
            (Self::Known(_) | Self::Closing(..), DeletionPurpose::IfEmpty) => {
                DeleterMove::Take(DeletionMark::Closing)
            }
            (Self::Gone(_), DeletionPurpose::All | DeletionPurpose::IfEmpty) => DeleterMove::Adopt,
        }
    }
}

/// The mark of a deleter in a container's record. It refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionMark {
    /// The container is deleted if it is empty. Until then, its blobs can be read.
    Closing,
    /// The container is deleted with its blobs, which can't be read any more. Nothing can undo it.
    Deleting,
}

impl DeletionMark {
    /// Returns the state of a container that has the mark until then.
    pub(super) fn registered(self, home: LiveContainer, until: Timestamp) -> ContainerState {
        match self {
            Self::Closing => ContainerState::Closing(home, until),
            Self::Deleting => ContainerState::Deleting(until),
        }
    }
}

/// A swap by the deleter that has the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleterSwap {
    /// Marks the container until the end of a turn.
    Mark(DeletionMark, Timestamp),
    /// Removes the mark.
    Open,
    /// Removes the container.
    End,
}

/// What the steps of a deletion depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeletionContext {
    /// `true` if objects carry their incarnation, so late ones aren't taken for objects of the next container.
    pub(crate) incarnations: bool,
    /// `true` if a write may rely on an earlier response about its container.
    pub(crate) memories: bool,
}

/// A step of the deleter that has the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleterStep {
    /// Waits until all writes have ended that may have begun without knowing of the mark.
    AwaitWriters(DeletionMark),
    /// Fails if there are blobs.
    Look,
    /// Turns a closed container into one that is being deleted.
    Begin,
    /// Deletes all objects that are listed.
    Sweep,
    /// Waits until no write relies on a response from before the mark.
    Outlast,
    /// Deletes the objects that arrived in the meantime.
    SweepAgain,
    /// Removes the records of the blobs.
    Forget,
    /// Removes the record of the container.
    End,
    /// Removes the mark, after a failure.
    Open,
    /// Ends the turn, after a failure. The next request to the container continues the deletion.
    Yield,
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// It is done.
    Done,
    /// There were objects, and others may have arrived behind them.
    Removed,
    /// It failed.
    Failed,
}

impl DeleterStep {
    /// Returns the first step under a mark.
    pub(crate) fn first(mark: DeletionMark, context: DeletionContext) -> Self {
        let sees_all = mark == DeletionMark::Deleting && context.incarnations;
        if sees_all {
            Self::Sweep
        } else {
            Self::AwaitWriters(mark)
        }
    }

    /// Returns the next step, or `None` after the last one.
    pub(crate) fn next(self, ended: StepOutcome, context: DeletionContext) -> Option<Self> {
        Some(match (self, ended) {
            (Self::End | Self::Open | Self::Yield, _) => return None,
            (
                Self::AwaitWriters(DeletionMark::Closing) | Self::Look | Self::Begin,
                StepOutcome::Failed,
            ) => Self::Open,
            (_, StepOutcome::Failed) => Self::Yield,
            (Self::AwaitWriters(DeletionMark::Closing), _) => Self::Look,
            (Self::Look, _) => Self::Begin,
            (Self::Begin, _) => Self::first(DeletionMark::Deleting, context),
            (Self::AwaitWriters(DeletionMark::Deleting), _) => Self::Sweep,
            (Self::Sweep | Self::SweepAgain, StepOutcome::Removed) => self,
            (Self::Sweep, StepOutcome::Done) if context.memories => Self::Outlast,
            (Self::Outlast, _) => Self::SweepAgain,
            (Self::Sweep | Self::SweepAgain, StepOutcome::Done) => Self::Forget,
            (Self::Forget, _) => Self::End,
        })
    }
}

/// The part of a container's version that is opaque to the register.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ContainerPayload {
    /// Generation of the first version, `None` in the first version itself.
    created: Option<Revision>,
    /// Oldest incarnation with blobs in the container, if not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Revision>,
    /// End of the current deleter's turn. Set once deletion of the container has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleting: Option<Timestamp>,
    /// The same, while the container is still there and may be found to have blobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closing: Option<Timestamp>,
    /// Also contains the fields that requests don't name, under names that no other field can have.
    metadata: BTreeMap<String, String>,
}

impl ContainerPayload {
    /// Reads a version's payload.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unreadable`]. Without it, there is no telling if the container is being deleted, so it takes
    /// no writes.
    pub(crate) fn of(version: &Version) -> Result<Self, StoreError> {
        serde_json::from_slice(version.payload())
            .map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))
    }

    /// Returns the payload of a new container. Its blobs are the objects of the incarnation `since` and later ones, if it adopts any.
    pub(crate) fn new(since: Option<Revision>, headers: &BlobHeaders) -> Self {
        Self {
            since,
            ..Self::default()
        }
        .with_headers(headers)
    }

    /// Converts the payload for a later version.
    pub(super) fn later(self, version: &Version) -> Self {
        let LiveContainer { incarnation, since } = self.home(version);
        Self {
            created: Some(incarnation),
            since: Some(since),
            ..self
        }
    }

    /// Replaces the fields.
    pub(super) fn with_headers(self, headers: &BlobHeaders) -> Self {
        let text = |(name, value): (&_, &FieldText)| {
            (ToString::to_string(name), value.as_str().to_owned())
        };
        let internal = headers
            .internal()
            .map(|(name, text)| (name.to_owned(), text));
        Self {
            metadata: headers.metadata.iter().map(text).chain(internal).collect(),
            ..self
        }
    }

    /// Returns the container at this version.
    pub(super) fn home(&self, version: &Version) -> LiveContainer {
        let incarnation = self.created.unwrap_or(version.generation());
        LiveContainer {
            incarnation,
            since: self.since.unwrap_or(incarnation),
        }
    }

    /// Returns the fields.
    pub(super) fn headers(&self) -> BlobHeaders {
        let mut headers = BlobHeaders::default();
        for (name, value) in &self.metadata {
            if headers.set_internal(name, value).is_err()
                && let Ok(value) = FieldText::new(value)
            {
                headers.metadata.insert(name.clone().into(), value);
            }
        }
        headers
    }

    /// Returns the content of the record after a change by a deleter.
    pub(super) fn changed(&self, change: DeleterSwap) -> Result<Content, StoreError> {
        let (deleting, closing) = match change {
            DeleterSwap::Mark(DeletionMark::Closing, until) => (None, Some(until)),
            DeleterSwap::Mark(DeletionMark::Deleting, until) => (Some(until), None),
            DeleterSwap::Open => (None, None),
            DeleterSwap::End => return Ok(Content::Absent),
        };
        Self {
            deleting,
            closing,
            ..self.clone()
        }
        .content()
    }

    /// Encodes the payload.
    pub(crate) fn content(&self) -> Result<Content, StoreError> {
        let payload = serde_json::to_vec(self);
        let payload =
            payload.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        Ok(Content::Hashed {
            hash: ContentHash::of(b""),
            payload: payload.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use ifmatch_core::command::{Command, Write};
    use ifmatch_core::lease::LeaseUse;
    use ifmatch_core::precondition::Preconditions;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn home(revision: u64) -> LiveContainer {
        LiveContainer {
            incarnation: Revision::new(revision),
            since: Revision::new(revision),
        }
    }

    #[test]
    fn a_deleter_moves_as_the_state_and_its_purpose_say() {
        use DeleterMove::{Adopt, Open, Rest, Take, Wait};
        use DeletionMark::{Closing, Deleting};
        use DeletionPurpose::{All, Finish, IfEmpty};
        let now = at(10);
        let (taken, over) = (at(11), at(10));
        for (state, [all, if_empty, finish]) in [
            (
                ContainerState::Known(home(1)),
                [Take(Deleting), Take(Closing), Rest],
            ),
            (ContainerState::Closing(home(1), taken), [Wait, Wait, Rest]),
            // The deleter stopped: its swaps are refused from the next one on.
            (
                ContainerState::Closing(home(1), over),
                [Take(Deleting), Take(Closing), Open],
            ),
            (ContainerState::Deleting(taken), [Wait, Wait, Rest]),
            // A deletion that has begun is never undone.
            (ContainerState::Deleting(over), [Take(Deleting); 3]),
            (ContainerState::Gone(Revision::new(1)), [Adopt, Adopt, Rest]),
        ] {
            for (purpose, expected) in [(All, all), (IfEmpty, if_empty), (Finish, finish)] {
                assert_eq!(
                    state.deletion(purpose, now),
                    expected,
                    "{state:?}, {purpose:?}"
                );
            }
        }
    }

    /// Follows all ends of all steps.
    fn walk(
        step: DeleterStep,
        context: DeletionContext,
        before: &[DeleterStep],
        check: &impl Fn(&[DeleterStep]),
    ) {
        let path = [before, &[step]].concat();
        check(&path);
        for ended in [StepOutcome::Done, StepOutcome::Failed] {
            if let Some(next) = step.next(ended, context) {
                assert!(!before.contains(&next), "{path:?} goes on with {next:?}");
                walk(next, context, &path, check);
            }
        }
    }

    #[test]
    fn a_deleter_keeps_the_order_that_protects_writes() {
        use DeleterStep::{
            AwaitWriters, Begin, End, Forget, Look, Open, Outlast, Sweep, SweepAgain, Yield,
        };
        for (incarnations, memories) in [(true, true), (true, false), (false, false)] {
            let context = DeletionContext {
                incarnations,
                memories,
            };
            for mark in [DeletionMark::Closing, DeletionMark::Deleting] {
                walk(DeleterStep::first(mark, context), context, &[], &|path| {
                    let has = |step| path.contains(&step);
                    let (last, is_closed) = (path[path.len() - 1], mark == DeletionMark::Closing);
                    let holds = match last {
                        AwaitWriters(_) | Yield => true,
                        Look => is_closed && path == [AwaitWriters(DeletionMark::Closing), Look],
                        Begin => has(Look),
                        Open => {
                            is_closed && !has(Sweep) && !has(AwaitWriters(DeletionMark::Deleting))
                        }
                        Sweep => {
                            has(Begin) == is_closed
                                && (incarnations || has(AwaitWriters(DeletionMark::Deleting)))
                        }
                        Outlast => has(Sweep) && memories,
                        SweepAgain => has(Outlast),
                        Forget => has(SweepAgain) == memories && has(Sweep),
                        End => has(Forget),
                    };
                    assert!(holds, "{context:?}: {path:?}");
                });
            }
            for step in [Sweep, SweepAgain] {
                assert_eq!(
                    step.next(StepOutcome::Removed, context),
                    Some(step),
                    "more may have arrived"
                );
            }
        }
    }

    /// A record after a write of this content.
    fn written(record: &Record, content: Content, seconds: u64) -> Record {
        let write = Write::new(&Method::PUT, &Preconditions::NONE, content, seconds)
            .with_lease(LeaseUse::Read(None));
        record
            .apply(&Command::Write(write), at(seconds))
            .next
            .expect("a change")
    }

    #[test]
    fn a_container_keeps_its_incarnation_until_it_ends() {
        let read = |record: &Record| ContainerState::of(record, at(9)).unwrap();
        for adopted in [None, Some(Revision::new(1))] {
            let new = ContainerPayload::new(adopted, &BlobHeaders::default())
                .content()
                .unwrap();
            let created = written(&Record::absent(), new, 1);
            let incarnation = created.state(at(9)).version().unwrap().generation();
            let home = LiveContainer {
                incarnation,
                since: adopted.unwrap_or(incarnation),
            };
            assert_eq!(read(&created), ContainerState::Known(home));
            let mut record = created;
            for (change, expected) in [
                (
                    DeleterSwap::Mark(DeletionMark::Closing, at(5)),
                    ContainerState::Closing(home, at(5)),
                ),
                (DeleterSwap::Open, ContainerState::Known(home)),
                (
                    DeleterSwap::Mark(DeletionMark::Closing, at(6)),
                    ContainerState::Closing(home, at(6)),
                ),
                (
                    DeleterSwap::Mark(DeletionMark::Deleting, at(7)),
                    ContainerState::Deleting(at(7)),
                ),
            ] {
                let version = record.state(at(9)).version().unwrap();
                let content = ContainerPayload::of(version)
                    .unwrap()
                    .later(version)
                    .changed(change)
                    .unwrap();
                record = written(&record, content, 2);
                assert_eq!(read(&record), expected);
            }
            let ended = written(
                &record,
                ContainerPayload::default()
                    .changed(DeleterSwap::End)
                    .unwrap(),
                3,
            );
            assert_eq!(read(&ended), ContainerState::Gone(ended.revision()));
            assert!(
                !ContainerMembers::since(ended.revision()).include(incarnation),
                "a late object is no blob"
            );
        }
    }
}
