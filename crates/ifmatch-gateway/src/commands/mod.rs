//! The commands and their shared parts: the runtime, signals, listeners, TLS, the log and the cache.

pub(crate) mod lease;
pub(crate) mod proxy;
pub(crate) mod register;
pub(crate) mod serve;

mod cache;
mod folder;
mod listen;
mod log;
mod runtime;
mod shutdown;
mod tls;
