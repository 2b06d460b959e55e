//! Slots for connections and requests, and the clients that hold them.

mod connections;
mod peers;
mod requests;

pub(crate) use connections::{ConnectionSlot, ConnectionSlots, EvictionRegistration};
pub(crate) use peers::ConnectedPeer;
pub use requests::RequestSlot;
pub(crate) use requests::RequestSlots;
