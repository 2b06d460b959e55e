//! The commands and their shared parts: the runtime, signals, reloads, listeners, TLS, the log and the cache.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod http_client;
pub(crate) mod lease;
pub(crate) mod proxy;
pub(crate) mod register;
pub(crate) mod serve;
pub(crate) mod transfer;
pub(crate) mod verify;

mod cache;
mod listen;
mod log;
pub(crate) mod reload;
mod runtime;
mod store_url;
mod tls;
