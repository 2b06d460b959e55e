//! Servers that tests start, and a TCP proxy that loses answers.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "test code reports failures by panicking")]

mod proxy;
mod server;

pub use proxy::{Network, Proxy};
pub use server::{Server, free_port};
