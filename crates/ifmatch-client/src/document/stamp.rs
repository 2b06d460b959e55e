//! The stamp that each write leaves in a document: it settles whether an unacknowledged write took effect.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;

/// Name of the stamp's member in a JSON object.
const STAMP: &str = "$ifmatch";
/// Name of the member with a value that isn't an object.
const VALUE: &str = "value";
/// Number of remembered writes.
const RECENT: usize = 32;

/// The stamp of a document's latest write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteStamp {
    /// Random number of the first write. It distinguishes this count of writes from the one that begins after a write
    /// without a stamp.
    chain: String,
    /// Number of writes.
    writes: u64,
    /// Random numbers of the last writes, this one at the end.
    recent: VecDeque<String>,
    /// Largest fencing token of a write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
    /// `true` if the document isn't a JSON object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    wrapped: bool,
}

/// The fate of a write, as the current stamp shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFate {
    /// The document is this write's.
    Current,
    /// The write took effect, and others have followed.
    Superseded,
    /// The write didn't take effect, and no longer can.
    NotDone,
    /// The stamp doesn't show it.
    Untold,
}

impl WriteStamp {
    /// Returns the stamp of the next write.
    pub(crate) fn next(previous: Option<&Self>, nonce: String, fence: Option<u64>) -> Self {
        let Some(previous) = previous else {
            return Self {
                chain: nonce.clone(),
                writes: 1,
                recent: [nonce].into(),
                fence,
                wrapped: false,
            };
        };
        let mut recent = previous.recent.clone();
        recent.push_back(nonce);
        while recent.len() > RECENT {
            recent.pop_front();
        }
        let (chain, writes) = (previous.chain.clone(), previous.writes.saturating_add(1));
        Self {
            chain,
            writes,
            recent,
            fence: fence.max(previous.fence),
            wrapped: false,
        }
    }

    /// Returns the fate of the write with this stamp, given the current one. A write that `creates` its document can only
    /// have created this chain.
    pub(crate) fn fate(&self, current: Option<&Self>, creates: bool) -> WriteFate {
        let Some(current) = current else {
            return WriteFate::Untold;
        };
        let nonce = self.recent.back();
        if nonce.is_some() && current.recent.back() == nonce {
            return WriteFate::Current;
        }
        if nonce.is_some_and(|nonce| current.recent.contains(nonce)) {
            return WriteFate::Superseded;
        }
        let later = current.writes.checked_sub(self.writes);
        // The current stamp names the write that has this one's place in the count.
        let names_rival = later.is_some_and(|later| later < current.recent.len() as u64);
        let same_chain = current.chain == self.chain;
        if (same_chain && names_rival) || (creates && !same_chain) {
            WriteFate::NotDone
        } else {
            WriteFate::Untold
        }
    }
}

/// Returns the JSON text of a value with its stamp.
pub(crate) fn encode(value: &Value, stamp: &WriteStamp) -> Result<Bytes, Error> {
    let mut stamp = stamp.clone();
    let mut object = match value {
        Value::Object(object) if !object.contains_key(STAMP) => object.clone(),
        Value::Object(_) => return Err(Error::refused(format!("the member {STAMP} is reserved"))),
        value => {
            stamp.wrapped = true;
            Map::from_iter([(VALUE.to_owned(), value.clone())])
        }
    };
    let invalid =
        |error: serde_json::Error| Error::refused(format!("the document is not JSON: {error}"));
    object.insert(
        STAMP.to_owned(),
        serde_json::to_value(&stamp).map_err(invalid)?,
    );
    serde_json::to_vec(&object)
        .map(Bytes::from)
        .map_err(invalid)
}

/// Returns the value and the stamp of JSON text. Text of other writers has no stamp.
pub(crate) fn decode(text: &[u8]) -> Result<(Value, Option<WriteStamp>), Error> {
    let value = serde_json::from_slice(text)
        .map_err(|error| Error::refused(format!("the document is not JSON: {error}")))?;
    let Value::Object(mut object) = value else {
        return Ok((value, None));
    };
    let Some(stamp) = object.remove(STAMP) else {
        return Ok((Value::Object(object), None));
    };
    let stamp: WriteStamp = serde_json::from_value(stamp).map_err(|error| {
        Error::refused(format!(
            "the member {STAMP} of the document is not a stamp: {error}"
        ))
    })?;
    let value = if stamp.wrapped {
        object.remove(VALUE).unwrap_or_default()
    } else {
        Value::Object(object)
    };
    Ok((value, Some(stamp)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(previous: Option<&WriteStamp>, writes: usize) -> WriteStamp {
        let mut stamp = WriteStamp::next(previous, "other 0".to_owned(), None);
        for number in 1..writes {
            stamp = WriteStamp::next(Some(&stamp), format!("other {number}"), None);
        }
        stamp
    }

    #[test]
    fn values_survive_with_and_without_a_stamp() {
        for value in [
            json!({ "a": 1 }),
            json!(7),
            json!(null),
            json!([1, 2]),
            json!({ "value": 1 }),
        ] {
            let stamp = WriteStamp::next(None, "n".to_owned(), Some(4));
            let (decoded, found) = decode(&encode(&value, &stamp).unwrap()).unwrap();
            assert_eq!((decoded, found.unwrap().fence), (value.clone(), Some(4)));
            assert_eq!(decode(value.to_string().as_bytes()).unwrap(), (value, None));
        }
        assert!(encode(&json!({ STAMP: 1 }), &after(None, 1)).is_err());
        assert!(decode(b"{\"$ifmatch\": 7}").is_err());
    }

    #[test]
    fn a_write_is_recognised_until_others_push_it_out() {
        let base = after(None, 3);
        let ours = WriteStamp::next(Some(&base), "ours".to_owned(), None);
        assert_eq!(ours.fate(Some(&ours), false), WriteFate::Current);
        for later in 1..RECENT {
            assert_eq!(
                ours.fate(Some(&after(Some(&ours), later)), false),
                WriteFate::Superseded,
                "{later}"
            );
        }
        assert_eq!(
            ours.fate(Some(&after(Some(&ours), RECENT)), false),
            WriteFate::Untold
        );
    }

    #[test]
    fn a_rival_in_its_place_shows_that_a_write_was_not_done() {
        let base = after(None, 3);
        let ours = WriteStamp::next(Some(&base), "ours".to_owned(), None);
        for rivals in 1..=RECENT {
            assert_eq!(
                ours.fate(Some(&after(Some(&base), rivals)), false),
                WriteFate::NotDone,
                "{rivals}"
            );
        }
        assert_eq!(
            ours.fate(Some(&after(Some(&base), RECENT + 1)), false),
            WriteFate::Untold
        );
        assert_eq!(
            ours.fate(Some(&base), false),
            WriteFate::Untold,
            "a read from before the write"
        );
    }

    #[test]
    fn another_chain_tells_nothing_except_to_a_creator() {
        let ours = WriteStamp::next(Some(&after(None, 3)), "ours".to_owned(), None);
        let mut foreign = after(None, 4);
        foreign.chain = "another".to_owned();
        assert_eq!(ours.fate(Some(&foreign), false), WriteFate::Untold);
        assert_eq!(ours.fate(None, false), WriteFate::Untold);
        assert_eq!(
            WriteStamp::next(None, "ours".to_owned(), None).fate(Some(&foreign), true),
            WriteFate::NotDone
        );
    }

    #[test]
    fn the_fence_never_falls() {
        let first = WriteStamp::next(None, "a".to_owned(), Some(7));
        assert_eq!(
            WriteStamp::next(Some(&first), "b".to_owned(), Some(3)).fence,
            Some(7)
        );
        assert_eq!(
            WriteStamp::next(Some(&first), "b".to_owned(), None).fence,
            Some(7)
        );
    }
}
