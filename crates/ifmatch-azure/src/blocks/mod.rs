//! Block blobs: blocks are staged one by one, then a block list assembles a blob from them.
//!
//! A staged block is stored as a blob of its own, in a container that no request can name. Put Block List reads its
//! blocks one after another as the body of a single write, so conditions, lease and swap work as for any write.

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

/// Maximum length of a block id, in bytes.
const MAX_ID: usize = 64;

/// A block id, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockId(String);

impl BlockId {
    /// Parses the base64 form. Returns `None` if it is malformed, empty or too long.
    fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        (1..=MAX_ID).contains(&bytes.len()).then(|| Self(hex::encode(bytes)))
    }

    /// Returns the base64 form.
    fn to_base64(&self) -> String {
        STANDARD.encode(hex::decode(&self.0).unwrap_or_default())
    }
}
