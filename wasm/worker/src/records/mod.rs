//! The register: one Durable Object per record, and one per group for the names of its records.
//!
//! # Objects
//! The record with key `b/photos/2026/cat.jpg` is in the object named `record:b/photos/2026/cat.jpg`, and nowhere else.
//! An object exists once and is single-threaded, so its compare-and-swap is a comparison and a write without an await
//! between them. The runtime holds the response back until the write is durable.
//!
//! # Listing
//! A scan needs the names of the records. Those of a [group](register::group) of keys, such as `b/photos/`, are in another
//! object, `names:b/photos/`. The order of steps keeps it complete after any interruption:
//!
//! 1. A new record's name is registered *before* the record is written. A name without a record does no harm: a scan
//!    looks up each record, and skips missing ones.
//! 2. A record is deleted *before* its name, and the name only if it wasn't registered again since. A creation that
//!    began before the deletion may have registered its name too early: it is rejected as a conflict, and starts over.
//!
//! The name of each record is therefore always registered.
//!
//! # Expiry
//! An object sets an [alarm](register) if its record may expire, and then deletes its database.

mod namespace;
pub(crate) mod object;
mod register;
mod sql;
mod wire;

pub use register::RecordObjects;
pub use wire::Kept;
