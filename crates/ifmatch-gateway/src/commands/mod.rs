//! The commands and their shared parts: the runtime, signals, reloads, listeners, TLS, the log and the cache.

pub(crate) mod bucket;
pub(crate) mod proxy;
pub(crate) mod register;
pub(crate) mod serve;

mod cache;
mod listen;
mod log;
pub(crate) mod reload;
mod runtime;
mod tls;
