//! Slots for connections and requests, and the clients that hold them.

pub(crate) use connections::{ConnectionSlot, ConnectionSlots, Registration};
pub(crate) use peer::Peer;
pub use requests::RequestSlot;
pub(crate) use requests::RequestSlots;

mod connections;
mod peer;
mod requests;
