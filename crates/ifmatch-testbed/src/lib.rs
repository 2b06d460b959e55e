//! Servers that tests start, a network that fails, and clients that write meanwhile.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "test code reports failures by panicking")]

pub mod azurite;
mod certificate;
mod clients;
pub mod engine;
pub mod etcd;
mod faketime;
mod log;
mod port;
pub mod postgres;
mod processes;
mod proxy;
pub mod redis;
pub mod s3;
mod server;
mod wait;

pub use certificate::Certificate;
pub use clients::Clients;
pub use faketime::faketime;
pub use log::Log;
pub use port::Port;
pub use proxy::{Network, Proxy};
pub use server::{Launch, Program, Server};
pub use wait::{LIMIT, within};
