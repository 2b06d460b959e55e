//! The ifmatch gateway: the blob service, or a caching proxy, behind listeners, TLS, tokens, limits, metrics and logs.
//!
//! The command `ifmatch` is [`cli::main`]. What is set by flags, environment and file are [`settings::Settings`];
//! checked against each other they are a [`config::Config`], with which the gateway runs.
//!
//! A request passes, in this order: the limits on its head (by hyper and h2), its request id, its host and framing, the
//! gateway's own endpoints (`/-/health`, `/-/metrics`, `/-/leases`, `/-/cache`), and its token. The blob service then
//! limits concurrent requests before it answers; a proxy limits them between its cache and the upstreams. The request
//! body is monitored for progress on the way in, and the response on the way out.

pub mod access;
pub mod accounts;
pub mod address;
pub mod cli;
pub mod config;
pub mod error;
pub mod proxy;
pub mod settings;
pub mod share;
pub mod switch;
pub mod units;

mod activity;
mod banner;
mod cache;
mod collect;
mod colour;
mod conditions;
mod connection;
mod endpoints;
mod entrance;
mod folder;
mod framing;
mod gateway;
mod host;
mod http2;
mod interim;
mod interjecting;
mod leases;
mod listen;
mod lobby;
mod log;
mod logged_path;
mod metrics;
mod misdirected;
mod misread;
mod operator;
mod patience;
mod peer;
mod request_body;
mod request_id;
mod response_body;
mod runtime;
mod serve;
mod server;
mod signals;
mod store;
mod ticket;
mod tls;
mod version;
mod watch;
