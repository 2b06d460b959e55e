//! A change of one record and of the files that belong to it.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use ifmatch_core::command::{Authority, Command, Content, LeaseOperation, Outcome, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Receipt, Record, RequestId, Version};
use ifmatch_core::tag::TagList;
use ifmatch_register::{Applied, Change, Key};

use super::Inner;
use super::append;
use super::body_files::BodyName;
use super::draft::{Draft, Need};
use super::payload::Payload;
use ifmatch_blob::records::{nonce, of_driver, refused};
use ifmatch_blob::store::{
    AppendBlock, Delete, HeaderChange, LeaseRequest, StoreError, StoreErrorKind, Update,
};
use ifmatch_blob::tags::TagCondition;

/// A write apart from its content.
#[derive(Clone, Debug)]
pub(super) struct WriteRequest {
    pub(super) method: Method,
    pub(super) preconditions: Preconditions,
    /// A condition on the tags.
    pub(super) if_tags: Option<TagCondition>,
    pub(super) lease: LeaseUse,
    pub(super) request: Option<RequestId>,
    pub(super) nonce: u64,
    /// The time after which the body may be gone.
    pub(super) until: Option<Timestamp>,
}

/// A condition that is false for each version. It takes the place of a false one on the tags, which the record doesn't know: so the
/// retry of a change is recognised before, and the lease is checked.
static FALSE: Preconditions = Preconditions {
    if_match: Some(TagList::Tags(Vec::new())),
    if_unmodified_since: None,
    if_none_match: None,
    if_modified_since: None,
};

impl WriteRequest {
    /// Creates a write without a condition on the tags, an identity or a time limit.
    pub(super) fn new(
        method: Method,
        preconditions: Preconditions,
        lease: LeaseUse,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            method,
            preconditions,
            if_tags: None,
            lease,
            request: None,
            nonce: nonce()?,
            until: None,
        })
    }

    /// Creates a deletion.
    pub(super) fn deletion(delete: Delete) -> Result<Self, StoreError> {
        let request = delete.request.map(|key| key.request(None));
        Ok(Self {
            request,
            ..Self::new(Method::DELETE, delete.preconditions, delete.lease)?
        })
    }

    /// Returns the write of this content, without a condition on the tags.
    pub(super) fn write(&self, content: Content) -> Write<'_> {
        self.write_if(&self.preconditions, content)
    }

    fn write_if<'a>(&'a self, preconditions: &'a Preconditions, content: Content) -> Write<'a> {
        Write::new(&self.method, preconditions, content, self.nonce)
            .with_lease(self.lease)
            .with_request(self.request)
    }

    /// Returns the write of this content over the version in a record. A condition that is false comes before a failure, and so does the
    /// response to a retry.
    pub(super) fn over(
        &self,
        before: &Record,
        now: Timestamp,
        content: Result<Content, StoreError>,
    ) -> Result<Command<'_>, StoreError> {
        let version = before.state(now).version();
        let failure = match content {
            Ok(content) => return self.write_over(version, content).map(Command::Write),
            Err(failure) => failure,
        };
        let command = Command::Write(self.write_over(version, Content::Unknown)?);
        match before.apply(&command, now).outcome {
            Outcome::Refused(_) | Outcome::Replayed(_) => Ok(command),
            _ => Err(failure),
        }
    }

    /// Returns the write of this content over a version, also on the condition on its tags.
    fn write_over(
        &self,
        version: Option<&Version>,
        content: Content,
    ) -> Result<Write<'_>, StoreError> {
        let Some(condition) = &self.if_tags else {
            return Ok(self.write(content));
        };
        let tags = version
            .map(payload_of)
            .transpose()?
            .map(|payload| payload.headers.tags)
            .unwrap_or_default();
        Ok(self.write_if(
            if condition.holds(&tags) {
                &self.preconditions
            } else {
                &FALSE
            },
            content,
        ))
    }
}

/// Returns the content that replaces a version, or `None` if there is none.
type ContentOf = Box<dyn Fn(Option<&Version>) -> Result<Content, StoreError> + Send + Sync>;

/// A change of a record.
pub(super) enum Edit {
    /// A write of the content that the function returns.
    Write(WriteRequest, ContentOf),
    /// An append.
    Append(WriteRequest, AppendBlock),
    /// A change of the content by a function of it.
    Update(WriteRequest, Update),
    /// A lease operation, with its random number.
    Lease(LeaseRequest, u64),
    /// A look at the record, which changes nothing. Those that wait at the same time share one.
    Look,
}

impl Edit {
    /// Returns a deletion.
    pub(super) fn absent(request: WriteRequest) -> Self {
        Self::Write(request, Box::new(|_| Ok(Content::Absent)))
    }

    /// Returns what must be read before the change is decided.
    pub(super) fn need(&self) -> Option<Need> {
        match self {
            Self::Append(..) => Some(Need::End),
            Self::Update(_, update) => Some(Need::Whole(update.limit)),
            Self::Write(..) | Self::Lease(..) | Self::Look => None,
        }
    }
}

impl Change for Edit {
    type Error = StoreError;
    type Context = Draft;

    fn joins(&self, draft: &Draft) -> bool {
        match self {
            Self::Append(..) => draft.takes_appends(),
            Self::Update(..) => draft.takes_updates(),
            Self::Write(..) | Self::Lease(..) | Self::Look => true,
        }
    }

    fn command(
        &self,
        before: &Record,
        now: Timestamp,
        draft: &mut Draft,
    ) -> Result<Command<'_>, StoreError> {
        let version = before.state(now).version();
        Ok(match self {
            Self::Write(request, _) if request.until.is_some_and(|until| now > until) => {
                let why = "the body took too long to arrive";
                request.over(
                    before,
                    now,
                    Err(StoreError::new(StoreErrorKind::Unavailable, why)),
                )?
            }
            Self::Write(request, content) => request.over(before, now, content(version))?,
            Self::Append(request, append) => {
                request.over(before, now, append::appended(append, version, draft))?
            }
            Self::Update(request, update) => match append::updated(update, version, draft)? {
                Some(content) => request.over(before, now, Ok(content))?,
                // Refused: nothing changes, so the lease doesn't matter.
                None => Command::Write(
                    request
                        .write_if(&FALSE, Content::Unknown)
                        .with_lease(LeaseUse::Read(None)),
                ),
            },
            Self::Look => Command::Write(Write::new(&Method::GET, &FALSE, Content::Unknown, 0)),
            Self::Lease(
                LeaseRequest {
                    action,
                    preconditions,
                    request,
                },
                nonce,
            ) => Command::Lease(
                LeaseOperation::new(*action, preconditions, *nonce)
                    .with_authority(Authority::Register)
                    .with_request(request.as_ref().map(|key| key.request(None))),
            ),
        })
    }

    fn applied(&self, applied: &Applied, draft: &mut Draft) {
        let is_written = matches!(applied.outcome, Outcome::Written(_));
        match self {
            Self::Append(..) | Self::Update(..) if is_written => draft.accept(),
            Self::Write(..) if is_written => {
                let version =
                    |record: &Record| record.settled(record.revision().timestamp()).cloned();
                draft.follow(
                    version(&applied.before).as_ref(),
                    version(&applied.after).as_ref(),
                );
            }
            _ => {}
        }
    }
}

/// A change that has taken place.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) receipt: Receipt,
    /// An earlier request with the same key made it.
    pub(super) is_replay: bool,
}

impl Inner {
    /// Makes a change together with those that wait for the same record.
    pub(super) async fn change(&self, key: &Key, edit: Edit) -> Result<Applied, StoreError> {
        let counted = self.internal_counts.begin(key);
        let applied = self.changes.apply(key, edit).await.map_err(of_driver)?;
        if let Some(counted) = counted {
            counted.end(applied.as_ref().ok(), self.driver.now());
        }
        applied
    }

    /// Loads a record that many requests need, together with those that wait for it.
    pub(super) async fn look(&self, key: &Key) -> Result<Record, StoreError> {
        match self.changes.apply(key, Edit::Look).await {
            Ok(applied) => applied.map(|applied| applied.before),
            // A change in the same group has an unknown outcome, but this has none.
            Err(error) if error.is_ambiguous() => self.driver.load(key).await.map_err(of_driver),
            Err(error) => Err(of_driver(error)),
        }
    }

    /// Swaps in this content.
    pub(super) async fn swap(
        &self,
        key: &Key,
        request: WriteRequest,
        content: Content,
    ) -> Result<Applied, StoreError> {
        self.change(
            key,
            Edit::Write(request, Box::new(move |_| Ok(content.clone()))),
        )
        .await
    }

    /// Changes header fields. The body stays in its place.
    pub(super) async fn set_fields(
        &self,
        key: &Key,
        request: WriteRequest,
        fields: HeaderChange,
    ) -> Result<(Settled, Record), StoreError> {
        let content = move |version: Option<&Version>| match version {
            Some(version) => {
                let payload = payload_of(version)?;
                fields.check(
                    &payload.headers,
                    payload.length,
                    Some(payload.created(version).timestamp()),
                )?;
                let headers = fields.of(&payload.headers);
                if fields.keeps_version() {
                    return kept(&Payload { headers, ..payload });
                }
                let created = Some(payload.created(version));
                encoded(&Payload {
                    created,
                    headers,
                    ..payload
                })
            }
            // There is no version, so the change is refused, unless it is the retry of one that took effect.
            None => Ok(Content::Absent),
        };
        let applied = self
            .change(key, Edit::Write(request, Box::new(content)))
            .await?;
        let after = applied.after.clone();
        Ok((self.settle(applied, None).await?, after))
    }

    /// Removes the file that is unreferenced after this outcome: the previous one, or the staged one.
    pub(super) async fn settle(
        &self,
        applied: Applied,
        staged: Option<BodyName>,
    ) -> Result<Settled, StoreError> {
        let now = self.driver.now();
        match applied.outcome {
            Outcome::Written(receipt) => {
                let kept = body_of(&applied.after, now);
                self.retire(body_of(&applied.before, now).filter(|before| Some(*before) != kept))
                    .await;
                Ok(Settled {
                    receipt,
                    is_replay: false,
                })
            }
            Outcome::Replayed(receipt) => {
                self.remove(staged).await;
                Ok(Settled {
                    receipt,
                    is_replay: true,
                })
            }
            outcome => {
                self.remove(staged).await;
                Err(refused(outcome, now))
            }
        }
    }

    /// Removes a body that no record will ever name, if there is one.
    pub(super) async fn remove(&self, body: Option<BodyName>) {
        if let Some(body) = body {
            self.bodies.remove(body).await;
        }
    }

    /// Removes a body that was replaced, if there is one.
    pub(super) async fn retire(&self, body: Option<BodyName>) {
        if let Some(body) = body {
            Arc::clone(&self.bodies).retire(body).await;
        }
    }
}

/// Decodes the payload of a version.
pub(super) fn payload_of(version: &Version) -> Result<Payload, StoreError> {
    Payload::of(version).map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))
}

/// Returns the file of the version in a record. A payload that can't be decoded may refer to a file, which the next
/// start handles.
pub(super) fn body_of(record: &Record, now: Timestamp) -> Option<BodyName> {
    let version = record.state(now).version()?;
    Payload::file_in(version.payload()).ok()?
}

/// Returns the content of a version with this payload.
pub(super) fn encoded(payload: &Payload) -> Result<Content, StoreError> {
    Ok(Content::Hashed {
        hash: payload.hash,
        payload: bytes_of(payload)?,
    })
}

/// Returns the content of a version that gets this payload, and stays the same version.
pub(super) fn kept(payload: &Payload) -> Result<Content, StoreError> {
    Ok(Content::Kept {
        payload: bytes_of(payload)?,
    })
}

fn bytes_of(payload: &Payload) -> Result<Bytes, StoreError> {
    payload
        .encode()
        .map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}
