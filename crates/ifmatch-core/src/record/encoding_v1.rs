//! The first encoding: versions have no dates, and permits do not record their duration.

use bytes::Bytes;
use serde::Deserialize;

use super::{Answer, Permit, Receipt, Record, Reply, RequestId, Revision, State, Token, Variant, Version};
use crate::date::{HttpDate, Timestamp};
use crate::lease::{Lease, LeaseReceipt};
use crate::tag::EntityTag;

/// Decodes a record without its version byte.
pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
    let (old, rest) = postcard::take_from_bytes::<OldRecord>(bytes).ok()?;
    rest.is_empty().then(|| old.into_record())
}

#[derive(Deserialize)]
struct OldRecord {
    revision: Revision,
    nonce: u64,
    state: OldState,
    permit: Option<OldPermit>,
    lease: Option<Lease>,
    replies: Vec<OldReply>,
}

#[derive(Deserialize)]
struct OldPermit {
    token: Token,
    deadline: Timestamp,
}

#[derive(Deserialize)]
enum OldState {
    Unknown,
    Absent,
    Present(OldVersion),
}

#[derive(Deserialize)]
struct OldVersion {
    generation: Revision,
    tags: Vec<EntityTag>,
    variants: Vec<Variant>,
    dated: Option<HttpDate>,
    payload: Bytes,
}

#[derive(Deserialize)]
struct OldReply {
    request: RequestId,
    answer: OldAnswer,
}

#[derive(Deserialize)]
enum OldAnswer {
    Written(OldReceipt),
    Leased(LeaseReceipt),
}

#[derive(Deserialize)]
struct OldReceipt {
    generation: Revision,
    tag: Option<EntityTag>,
    created: bool,
}

impl OldRecord {
    fn into_record(self) -> Record {
        // No date was later than the last change rounded up. A version that was never written has none.
        let latest =
            if self.revision == Revision::NONE { HttpDate::MIN } else { self.revision.timestamp().last_modified() };
        let state = match self.state {
            OldState::Unknown => State::Unknown,
            OldState::Absent => State::Absent,
            OldState::Present(version) => State::Present(version.into_version()),
        };
        let latest = state.version().map_or(latest, |version| latest.max(version.modified));
        Record {
            revision: self.revision,
            nonce: self.nonce,
            state,
            permit: self.permit.map(OldPermit::into_permit),
            lease: self.lease,
            replies: self.replies.into_iter().map(OldReply::into_reply).collect(),
            latest,
            fence: Revision::NONE,
        }
    }
}

impl OldPermit {
    /// Bounded only by its deadline, as before.
    fn into_permit(self) -> Permit {
        let ttl = Timestamp::default().until(self.deadline);
        Permit { token: self.token, deadline: self.deadline, ttl }
    }
}

impl OldVersion {
    fn into_version(self) -> Version {
        let modified = self.dated.unwrap_or_else(|| self.generation.timestamp().last_modified());
        let Self { generation, tags, variants, dated, payload } = self;
        Version { generation, tags, variants, dated, modified, payload }
    }
}

impl OldReply {
    fn into_reply(self) -> Reply {
        let answer = match self.answer {
            OldAnswer::Written(OldReceipt { generation, tag, created }) => {
                let modified = tag.is_some().then(|| generation.timestamp().last_modified());
                Answer::Written(Receipt { generation, tag, created, modified })
            }
            OldAnswer::Leased(receipt) => Answer::Leased(receipt),
        };
        Reply { request: self.request, answer }
    }
}
