//! Strong entity tags, conditional requests and the write protocol as pure decisions without I/O.

pub use tag::EntityTag;

mod apply;
pub mod command;
pub mod date;
pub mod digest;
pub mod fields;
pub mod lease;
pub mod policy;
pub mod precondition;
pub mod problem;
pub mod range;
pub mod record;
pub mod tag;

mod revision;
mod text;
