//! Work that goes on when the one who waits for it has left.

pub(crate) use native::{Blocking, block, detach};

mod native;
