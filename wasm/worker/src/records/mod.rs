//! The register: a Durable Object for each record, and one that lists the records of a group.
//!
//! # Objects
//! The record of the key `b/photos/2026/cat.jpg` is in the object of the name `record:b/photos/2026/cat.jpg`, and nowhere
//! else. An object does one thing at a time and exists once, so its compare and swap is a comparison and a write without
//! a pause between them. The runtime holds its answer back until the write is durable.
//!
//! # Listing
//! A scan needs to know which objects there are. The names of a [group](place::group) of keys, such as `b/photos/`, are in
//! one more object, `names:b/photos/`. The order is what keeps it right, whatever ends in the middle:
//!
//! 1. A record that comes into being is noted among the names *before* it is written. A name without a record does no harm: a
//!    scan looks each record up, and leaves out what is not there.
//! 2. A record that is forgotten is removed *before* its name is, and its name is removed only if nobody has noted it
//!    again since. A creation that began before the removal, and so may have noted its name too early, is refused as a
//!    conflict, and begins anew.
//!
//! So each record has its name noted at all times.
//!
//! # Expiry
//! An object sets an [alarm](age) if its record says no more than the resource itself. It then deletes the record along
//! with the database.

mod age;
mod ask;
pub(crate) mod object;
mod place;
mod register;
mod table;
mod wire;

pub use register::RecordObjects;
pub use wire::Kept;
