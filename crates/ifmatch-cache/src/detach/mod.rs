//! Work that goes on when the one who waits for it has left.

pub(crate) use native::detach;

mod native;
