//! Messages between the Worker and its objects: a version byte, and postcard.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the messages. During a deployment, the Worker and an object can run different releases.
const VERSION: u8 = 2;

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordEntry {
    /// The revision that a swap compares.
    pub(super) revision: u64,
    /// The encoded record.
    pub(super) record: Vec<u8>,
}

/// Number of a name's registration.
pub(super) type NoteNumber = u64;

/// Retention of an object's record, which is deleted at the earliest a day after its last change.
///
/// ```
/// use ifmatch_worker::Kept;
///
/// // Only resources below `drafts/` keep their state elsewhere as well.
/// let kept = |key: &str| if key.starts_with("drafts/") { Kept::WhileBusy } else { Kept::Always };
/// assert_eq!(kept("drafts/a"), Kept::WhileBusy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// Never deleted: the record is the only copy of its state.
    Always,
    /// Deleted once no write is in flight and no lease is held: the resource itself has the rest of the state.
    WhileBusy,
}

impl Kept {
    /// Returns the number stored in a table.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Always => 0,
            Self::WhileBusy => 1,
        }
    }

    /// Converts a stored number. Unknown numbers count as `Always`.
    pub(super) fn of(number: i64) -> Self {
        if number == 1 {
            Self::WhileBusy
        } else {
            Self::Always
        }
    }
}

/// A request to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ObjectRequest {
    /// Returns the record, as [`ObjectResponse::Record`].
    Load,
    /// Replaces or deletes the record if it has the expected revision, 0 for a missing record. Answered with
    /// [`ObjectResponse::Done`], [`ObjectResponse::Conflict`] or [`ObjectResponse::Unavailable`].
    Swap {
        /// Key of the record.
        key: String,
        /// Expected revision.
        expected: u64,
        /// The new record, or `None` to delete it.
        next: Option<RecordEntry>,
        /// Retention of the new record.
        kept: Kept,
    },
    /// Registers a name in the group. Answered with [`ObjectResponse::Done`]. Each execution uses a new note, so a late or
    /// repeated removal never removes a later record's name.
    Note {
        /// The key.
        name: String,
    },
    /// Returns a name's note, as [`ObjectResponse::Noted`].
    Noted {
        /// The key.
        name: String,
    },
    /// Removes a name unless it was registered again. Answered with [`ObjectResponse::Done`].
    Remove {
        /// The key.
        name: String,
        /// The note of the registration to remove.
        note: NoteNumber,
    },
    /// Returns names with a prefix, in the order of their bytes, as [`ObjectResponse::Names`].
    Names {
        /// The prefix.
        prefix: String,
        /// The name before the first one.
        after: Option<String>,
        /// Maximum number of names.
        limit: u32,
    },
}

/// An object's response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ObjectResponse {
    /// The record, if there is one.
    Record(Option<RecordEntry>),
    /// The request was carried out.
    Done,
    /// Nothing was changed. This is the current record.
    Conflict(Option<RecordEntry>),
    /// The name's note, if it is registered.
    Noted(Option<NoteNumber>),
    /// The names.
    Names(Vec<String>),
    /// Nothing was changed, for this reason.
    Unavailable(String),
}

/// The message is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid message between the Worker and its Durable Object: they run different releases")]
pub(super) struct UnreadableMessage;

/// Encodes a message.
pub(super) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, UnreadableMessage> {
    postcard::to_extend(message, vec![VERSION]).map_err(|_| UnreadableMessage)
}

/// Decodes a message.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, UnreadableMessage> {
    let (version, message) = bytes.split_first().ok_or(UnreadableMessage)?;
    match postcard::take_from_bytes(message) {
        Ok((message, [])) if *version == VERSION => Ok(message),
        _ => Err(UnreadableMessage),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn messages_round_trip() {
        let entry = RecordEntry {
            revision: u64::MAX,
            record: vec![0, 255],
        };
        for ask in [
            ObjectRequest::Load,
            ObjectRequest::Swap {
                key: "b/ä/\u{1f980}".to_owned(),
                expected: 0,
                next: Some(entry.clone()),
                kept: Kept::WhileBusy,
            },
            ObjectRequest::Names {
                prefix: String::new(),
                after: Some("x".to_owned()),
                limit: u32::MAX,
            },
        ] {
            assert_eq!(decode::<ObjectRequest>(&encode(&ask).unwrap()), Ok(ask));
        }
        let answer = ObjectResponse::Conflict(Some(entry));
        assert_eq!(
            decode::<ObjectResponse>(&encode(&answer).unwrap()),
            Ok(answer)
        );
    }

    #[test]
    fn other_versions_and_truncated_messages_are_invalid() {
        let said = encode(&ObjectRequest::Load).unwrap();
        let other = [&[VERSION + 1], &said[1..]].concat();
        let longer = [&said[..], &[0]].concat();
        for bytes in [&other[..], &longer, &said[..1], &[]] {
            assert_eq!(
                decode::<ObjectRequest>(bytes),
                Err(UnreadableMessage),
                "{bytes:?}"
            );
        }
    }
}
