//! The command `ifmatch`: its command line, and the servers that it starts, a blob service or a caching proxy.
//!
//! [`cli::main`] runs the command. Flags, environment variables and the configuration file result in
//! [`Settings`](ifmatch_gateway_config::settings::Settings), which are validated into a
//! [`Config`](ifmatch_gateway_config::Config) or a [`ProxyConfig`](ifmatch_gateway_config::proxy::ProxyConfig). The
//! other commands are in `ifmatch-gateway-commands`, and what a server serves besides blobs and proxied responses is in
//! `ifmatch-gateway-service`.

pub mod cli;

mod commands;
