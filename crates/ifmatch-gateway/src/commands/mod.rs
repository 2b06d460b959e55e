//! The commands and their shared parts: the runtime, signals, reloads, listeners, TLS, the log and the cache.

// Commands. `register` also opens the servers' registers, and `bucket` the stores of `serve`.
pub(crate) mod bucket;
pub(crate) mod proxy;
pub(crate) mod register;
pub(crate) mod serve;

// What the servers share.
mod cache;
mod check;
mod listen;
mod log;
mod reload;
mod runtime;
mod tls;

pub(crate) use check::{check_proxy, check_serve};
