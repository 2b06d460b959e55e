//! The ifmatch blob service as a Cloudflare Worker: bodies in R2, records in Durable Objects.
//!
//! It is the service of the native gateway, and makes the same decisions with the same code. What is here are the
//! bindings: an object store on R2 (`entry::r2`), a register on Durable Objects (`records`), requests and responses of
//! the runtime (`entry::edge`), and the settings.
//!
//! Without the feature `entry` it is a library for a Worker of your own: the register, for `ifmatch::ConditionalLayer`
//! around a service, with the class of its objects.

mod bindings;
#[cfg(feature = "entry")]
mod entry;
mod glue;
mod records;
pub mod tasks;

pub use records::object::Records;
pub use records::{Kept, RecordObjects};
