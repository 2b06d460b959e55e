//! Models of six protocols, checked over every interleaving with the real decisions of ifmatch-core: guarded writes and
//! leases ([`protocol`]), changes that share a swap ([`group`]), appends to a file ([`append`]), the client's lock ([`lock`]), containers that are deleted and
//! created again ([`container`]), and the log of purges that caches share ([`purge`]).
//!
//! In each model, a sabotage disables one check of the protocol. The model checker must then find an interleaving that the
//! check prevents.

pub mod append;
pub mod container;
pub mod group;
pub mod lock;
pub mod protocol;
pub mod purge;
