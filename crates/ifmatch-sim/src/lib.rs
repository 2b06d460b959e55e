//! Models of protocols, checked in every order of their steps.
//!
#![doc = include_str!("../README.md")]

pub mod append;
pub mod bodies;
pub mod container;
pub mod emptying;
pub mod group;
pub mod lock;
pub mod protocol;
pub mod purge;
pub mod snapshots;
