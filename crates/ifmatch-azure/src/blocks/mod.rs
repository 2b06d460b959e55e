//! Block blobs: blocks are staged one by one, then a block list assembles a blob from them.
//!
//! A staged block is stored as a separate blob, in a container that no request can name. Put Block List reads its
//! blocks one after another as the body of a single write, so conditions, lease and swap work as for any write.

mod body;
mod document;
mod get_block_list;
mod put_block;
mod put_block_list;

pub(crate) use get_block_list::get_block_list;
pub(crate) use put_block::{put_block, put_block_from_url};
pub(crate) use put_block_list::put_block_list;
