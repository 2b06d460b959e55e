//! Strong entity tags, conditional requests and the write protocol as pure decisions without I/O.

pub use tag::EntityTag;

pub mod date;
pub mod digest;
pub mod precondition;
pub mod tag;

mod text;
