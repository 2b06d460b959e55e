//! Block blobs: blocks are staged one by one, and a list makes a blob of them.
//!
//! A staged block is a blob of its own in a container that no request can name. A list reads the blocks it names, one after
//! another, as the body of one write to the store: so the conditions, the lease and the swap are those of any write.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(super) use commit::put_list;
pub(super) use inspect::get_list;
pub(super) use shelf::{Shelf, StagedBlocks, discard, staged_blocks};
pub(super) use stage::put_block;

pub(super) mod collect;
mod commit;
mod committed;
mod document;
mod inspect;
mod reader;
mod shelf;
mod stage;

/// The longest id of a block, in bytes.
const MAX_ID: usize = 64;

/// The id of a block, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockId(String);

impl BlockId {
    /// Reads the base64 that stands in parameters and lists. None if it is none, empty, or too long.
    fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        (1..=MAX_ID).contains(&bytes.len()).then(|| Self(hex::encode(bytes)))
    }

    /// The base64 that stands in lists.
    fn to_base64(&self) -> String {
        STANDARD.encode(hex::decode(&self.0).unwrap_or_default())
    }
}
