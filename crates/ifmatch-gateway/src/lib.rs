//! The ifmatch gateway: a blob service or a caching proxy, with TLS, tokens, limits, metrics and logs.
//!
//! [`cli::main`] runs the command `ifmatch`. Flags, environment variables and the configuration file result in
//! [`Settings`](config::settings::Settings), which are validated into a [`Config`](config::Config) or a
//! [`ProxyConfig`](config::proxy::ProxyConfig).
//!
//! A request passes, in this order: the HTTP server and its limits (`ifmatch-http-server`), request id, framing and
//! host checks, the gateway's own endpoints (`/-/health`, `/-/metrics`, `/-/leases`, `/-/conflicts`, `/-/cache`), and tokens. Then the
//! blob service takes a request slot and responds; a proxy takes the slot between its cache and the upstreams.

pub mod access;
pub mod cli;
pub mod config;
pub mod error;

mod commands;
mod conflicts;
mod console;
mod endpoints;
mod gateway;
mod leases;
mod metrics;
mod platform;
mod purges;
mod traces;
