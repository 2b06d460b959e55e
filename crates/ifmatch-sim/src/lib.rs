//! A model of the write protocol, checked over every interleaving. It runs the real `Record::apply`.
//!
//! [`Protocol`](protocol::Protocol) has a register, a resource behind it, writers, a reader, a clock, and crashes. Each step of an actor is one
//! message to the register or to the resource, so that between any two steps all others may take theirs.
//! [`Sabotage`](protocol::Sabotage) leaves out one check of the protocol: the checker must then find the interleaving that it
//! prevents.

pub mod actor;
mod lease;
pub mod protocol;
