//! Slots for connections and requests, and the clients that hold them.

pub(crate) use connections::{ConnectionSlot, ConnectionSlots, Registration};
pub use requests::RequestSlot;
pub(crate) use requests::RequestSlots;

pub(crate) mod peer;
pub(crate) mod requests;

mod connections;
