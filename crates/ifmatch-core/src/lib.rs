//! Strong entity tags, conditional requests and the write protocol as pure decisions without I/O.
//!
//! Without the default feature `encoding`, records can't be stored. Without `protocol` too, only the parts that a client
//! needs remain: tags, dates, header fields and the decisions of a lock.

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use tag::EntityTag;

pub mod append;
pub mod date;
pub mod fields;
pub mod lock;
pub mod share;
pub mod tag;

#[cfg(feature = "protocol")]
mod apply;
#[cfg(feature = "protocol")]
pub mod command;
#[cfg(feature = "protocol")]
pub mod digest;
#[cfg(feature = "protocol")]
pub mod group;
#[cfg(feature = "protocol")]
pub mod lease;
#[cfg(feature = "protocol")]
pub mod policy;
#[cfg(feature = "protocol")]
pub mod precondition;
#[cfg(feature = "protocol")]
pub mod problem;
#[cfg(feature = "protocol")]
pub mod purge_log;
#[cfg(feature = "protocol")]
pub mod range;
#[cfg(feature = "protocol")]
pub mod record;
#[cfg(feature = "shared-key")]
pub mod shared_key;

mod text;

#[cfg(all(doctest, feature = "protocol"))]
#[doc = include_str!("../README.md")]
struct Readme;
