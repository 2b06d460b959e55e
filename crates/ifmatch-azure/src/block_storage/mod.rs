//! The stored blocks of a blob: staged ones, each a separate blob in a container that no request can name, and the lists of committed ones.

mod committed;
pub(crate) mod staging;

pub(crate) use committed::{CommittedList, SavedList, open_with_list};
