//! The commands and their shared parts: the runtime, signals, listeners, TLS, the log and the cache.

pub(crate) mod check;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod proxy;
pub(crate) mod register;
pub(crate) mod serve;
pub(crate) mod verify;

mod cache;
mod folder;
mod http_client;
mod listen;
mod log;
mod runtime;
mod shutdown;
mod tls;
