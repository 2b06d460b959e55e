//! What is said to an object, and what it answers: postcard behind one byte that says which language it is.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The language. During a deployment an object can be of another release than who asks it.
const VERSION: u8 = 2;

/// A record as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// What a swap compares.
    pub(super) revision: u64,
    /// The encoded record.
    pub(super) record: Vec<u8>,
}

/// What tells one noting of a name from another.
pub(super) type Note = u64;

/// Retention of an object's record, which is deleted at the earliest a day after its last change.
///
/// ```
/// use ifmatch_worker::Kept;
///
/// // Only what is below `drafts/` has its state in another place as well.
/// let kept = |key: &str| if key.starts_with("drafts/") { Kept::WhileBusy } else { Kept::Always };
/// assert_eq!(kept("drafts/a"), Kept::WhileBusy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// Never deleted: the record is the only copy of its state.
    Always,
    /// Deleted once no write is in flight and no lease is held: the resource itself has the rest of the state.
    WhileBusy,
    /// Like `WhileBusy`, and additionally kept while the resource exists.
    WhilePresent,
}

impl Kept {
    /// Returns the number stored in a table.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Always => 0,
            Self::WhileBusy => 1,
            Self::WhilePresent => 2,
        }
    }

    /// Converts a stored number. Unknown numbers count as `Always`.
    pub(super) fn of(number: i64) -> Self {
        match number {
            1 => Self::WhileBusy,
            2 => Self::WhilePresent,
            _ => Self::Always,
        }
    }
}

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ask {
    /// The record. Answered with [`Answer::Record`].
    Load,
    /// Replaces the record, or forgets it, if it still has this revision; 0 where there is none. Answered with
    /// [`Answer::Done`], [`Answer::Conflict`] or [`Answer::Unavailable`].
    Swap {
        /// Whose record it is.
        key: String,
        /// The revision to replace.
        expected: u64,
        /// What to put in its place.
        next: Option<Entry>,
        /// Retention of the new record.
        kept: Kept,
    },
    /// Registers a name in the group. Answered with [`Answer::Done`]. Each execution uses a new note, so that a late or
    /// repeated removal never removes a later record's name.
    Note {
        /// The key.
        name: String,
    },
    /// How a name is noted. Answered with [`Answer::Noted`].
    Noted {
        /// The key.
        name: String,
    },
    /// Removes a name that nobody has noted again. Answered with [`Answer::Done`].
    Remove {
        /// The key.
        name: String,
        /// How it was noted.
        note: Note,
    },
    /// The names that begin with a prefix and come after another one, in the order of their bytes. Answered with
    /// [`Answer::Names`].
    Names {
        /// What they begin with.
        prefix: String,
        /// What they come after.
        after: Option<String>,
        /// The most names.
        limit: u32,
    },
}

/// What an object answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The record, if there is one.
    Record(Option<Entry>),
    /// It was done.
    Done,
    /// Nothing was done: this is the record now.
    Conflict(Option<Entry>),
    /// How the name is noted, if it is.
    Noted(Option<Note>),
    /// The names.
    Names(Vec<String>),
    /// Nothing was done, and why.
    Unavailable(String),
}

/// What came cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message between a Worker and its Durable Object cannot be read: they are of different releases")]
pub(super) struct Unreadable;

/// Writes a message.
pub(super) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, Unreadable> {
    postcard::to_extend(message, vec![VERSION]).map_err(|_| Unreadable)
}

/// Reads a message.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let (version, message) = bytes.split_first().ok_or(Unreadable)?;
    match postcard::take_from_bytes(message) {
        Ok((message, [])) if *version == VERSION => Ok(message),
        _ => Err(Unreadable),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let entry = Entry { revision: u64::MAX, record: vec![0, 255] };
        for ask in [
            Ask::Load,
            Ask::Swap {
                key: "b/ä/\u{1f980}".to_owned(),
                expected: 0,
                next: Some(entry.clone()),
                kept: Kept::WhilePresent,
            },
            Ask::Names { prefix: String::new(), after: Some("x".to_owned()), limit: u32::MAX },
        ] {
            assert_eq!(decode::<Ask>(&encode(&ask).unwrap()), Ok(ask));
        }
        let answer = Answer::Conflict(Some(entry));
        assert_eq!(decode::<Answer>(&encode(&answer).unwrap()), Ok(answer));
    }

    #[test]
    fn another_language_and_what_is_cut_off_are_not_guessed_at() {
        let said = encode(&Ask::Load).unwrap();
        let other = [&[VERSION + 1], &said[1..]].concat();
        let longer = [&said[..], &[0]].concat();
        for bytes in [&other[..], &longer, &said[..1], &[]] {
            assert_eq!(decode::<Ask>(bytes), Err(Unreadable), "{bytes:?}");
        }
    }
}
