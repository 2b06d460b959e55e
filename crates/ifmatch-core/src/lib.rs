//! Strong entity tags, conditional requests and the write protocol as pure decisions without I/O.
//!
#![cfg_attr(feature = "protocol", doc = include_str!("../README.md"))]
//!
//! # Features
//!
//! Without the default feature `encoding`, records can't be stored. Without `protocol` too, only the parts that a client
//! needs remain: tags, dates, header fields and the decisions of a lock.

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use tag::EntityTag;

// The rules of HTTP. `text` formats header values.
pub mod date;
#[cfg(feature = "protocol")]
pub mod digest;
pub mod fields;
#[cfg(feature = "protocol")]
pub mod policy;
#[cfg(feature = "protocol")]
pub mod precondition;
#[cfg(feature = "protocol")]
pub mod problem;
#[cfg(feature = "protocol")]
pub mod range;
pub mod tag;
mod text;

// The protocol of writes. Read `record` first, which has a `revision` and may have a `lease`. Then `command`, what can be asked of
// it; `apply`, which decides how a command changes it; and `group`, which applies several commands to it before one swap.
#[cfg(feature = "protocol")]
mod apply;
#[cfg(feature = "protocol")]
pub mod command;
#[cfg(feature = "protocol")]
pub mod group;
#[cfg(feature = "protocol")]
pub mod lease;
#[cfg(feature = "protocol")]
pub mod record;
#[cfg(feature = "protocol")]
mod revision;

// Other decisions, each on its own.
pub mod append;
pub mod lock;
#[cfg(feature = "protocol")]
pub mod purge_log;
pub mod share;
#[cfg(feature = "shared-key")]
pub mod shared_key;
