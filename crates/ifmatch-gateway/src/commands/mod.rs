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

mod access_file;
mod cache;
mod combined_log;
pub(crate) mod dry_run;
mod folder;
mod inherited;
mod listen;
mod log;
mod reload;
mod remote;
mod runtime;
mod service_manager;
mod shutdown;
mod store_url;
mod tls;
