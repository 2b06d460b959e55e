//! A shared HTTP cache (RFC 9111) as a Tower layer.
//!
#![doc = include_str!("../README.md")]

pub mod policy;

mod answer;
mod asked;
mod body;
mod budget;
mod builder;
mod config;
mod content;
mod detach;
mod fetch;
mod fill;
mod flight;
mod flow;
mod group_stamps;
mod handle;
mod head;
mod key;
mod layer;
mod memory;
mod metrics;
mod read;
mod service;
mod shared;
mod stored;
mod table;
mod write;

pub use body::ResponseBody;
pub use builder::Builder;
pub use handle::{CacheHandle, Purge};
pub use layer::CacheLayer;
pub use metrics::Metrics;
pub use service::Cache;
