//! Which header fields go where: those of one connection, and those that a 304 keeps.

pub mod hop_by_hop;
pub mod not_modified;
