//! A model of the write protocol, checked over every interleaving. It runs the real `Record::apply`.
//!
//! [`Protocol`](model::Protocol) has a register, a resource, writers, a reader, a clock and crashes. Each step of an
//! actor is one message to the register or the resource, and steps of other actors may come between any two steps.
//! [`Sabotage`](model::Sabotage) disables one check of the protocol: the model checker must then find an interleaving
//! that the check prevents. [`Purges`](purge::Purges) is the same for the log of purges that caches share.

pub mod actor;
pub mod container;
mod lease;
pub mod lock;
pub mod model;
pub mod protocol;
pub mod purge;
