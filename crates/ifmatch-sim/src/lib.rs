//! Models of protocols, checked over every interleaving with the real decisions of ifmatch-core: guarded writes and
//! leases ([`protocol`]), changes that share a swap ([`group`]), appends to a file ([`append`]), the client's lock ([`lock`]),
//! containers that are deleted and created again ([`container`]) or deleted if they are empty ([`emptying`]), snapshots and deletions
//! that must leave none behind ([`snapshots`]), bodies in a bucket that several processes share ([`bodies`]), and the log of purges that caches share ([`purge`]).
//!
//! In each model, a sabotage disables one check of the protocol. The model checker must then find an interleaving that the
//! check prevents.

pub mod append;
pub mod bodies;
pub mod container;
pub mod emptying;
pub mod group;
pub mod lock;
pub mod protocol;
pub mod purge;
pub mod snapshots;
