//! The URI of a request as the client sent it. A router that is mounted below a prefix sees only the rest of the path.

#[cfg_attr(feature = "axum", path = "axum.rs")]
#[cfg_attr(not(feature = "axum"), path = "plain.rs")]
mod imp;

pub(crate) use imp::{map, replace, uri};
