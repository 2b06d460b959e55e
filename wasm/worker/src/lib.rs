//! The ifmatch blob service as a Cloudflare Worker: bodies in R2, records in Durable Objects.
//!
//! It runs the service of the native gateway. This crate adds the bindings: an object store on R2 (`entry::r2`), a
//! register on Durable Objects (`records`), the runtime's requests and responses (`entry::edge`), and the settings.
//!
//! Without the feature `entry` it is a library for other Workers: the register for `ifmatch::ConditionalLayer`, and the
//! class of its Durable Objects.

mod bindings;
#[cfg(feature = "entry")]
mod entry;
mod records;
pub mod tasks;

pub use records::object::Records;
pub use records::{Kept, RecordObjects};
