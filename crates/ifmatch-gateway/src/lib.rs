//! The command `ifmatch`: its command line, and the servers that it starts, a blob service or a caching proxy.
//!
//! [`cli::main`] runs the command:
//!
//! 1. `cli` parses the command line. Flags, environment variables and the configuration file result in
//!    [`Settings`](ifmatch_gateway_config::settings::Settings), which are validated into a
//!    [`Config`](ifmatch_gateway_config::Config) or a [`ProxyConfig`](ifmatch_gateway_config::proxy::ProxyConfig).
//! 2. `commands::serve` or `commands::proxy` builds the service and opens its listeners. `commands::runtime` runs it until a signal stops
//!    it. `commands::register` and `commands::bucket` are commands that run no server; the other ones are in `ifmatch-gateway-commands`.
//!
//! What a server serves besides blobs and proxied responses is in `ifmatch-gateway-service`. The servers share:
//!
//! - `runtime`: threads, signals, and messages to the service manager.
//! - `listen`: the addresses and their limits, and sockets from the service manager. `tls`: the certificates.
//! - `reload`: a signal exchanges the certificates and the tokens. `check`: `--check` only reads them.
//! - `log`: the log and the access log. `cache`: the cache in front of upstreams or of an object store.
//! - `register` opens the configured register. `bucket` opens a store in a bucket, for `serve`, `backup` and `restore`.

pub mod cli;

mod commands;
