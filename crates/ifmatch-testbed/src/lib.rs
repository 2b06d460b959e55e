//! Servers that tests start, a network that fails, and clients that write meanwhile.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "test code reports failures by panicking")]

mod clients;
pub mod etcd;
pub mod postgres;
mod processes;
mod proxy;
pub mod redis;
mod server;

pub use clients::Clients;
pub use proxy::{Network, Proxy};
pub use server::{Launch, Program, Server, free_port};
