//! `ifmatch proxy`: a reverse proxy with the shared cache.

pub use config::{ProxyConfig, Sharing};
pub use settings::{InvalidRoute, ProxySettings, Route};

pub(crate) mod counters;
pub(crate) mod purge;
pub(crate) mod run;

pub(crate) mod acquainted;
mod banner;
mod config;
mod front;
mod guard;
mod settings;
