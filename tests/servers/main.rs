//! The real binary beside real servers: PostgreSQL, Redis and etcd, object stores, Azurite, nginx and Varnish; several gateways on one
//! register; and the cases of the cache by a clock that libfaketime sets. `cargo xtask ci --only servers` runs them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod behind_nginx;
mod cache_cases;
mod client_for_azure;
mod client_objects;
mod cloud_stores;
mod cluster;
mod howtos;
mod kubernetes;
mod object_stores;
mod registers;
mod traces;
