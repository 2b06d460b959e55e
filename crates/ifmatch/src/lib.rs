//! A Tower layer for strong ETags, conditional requests and race-free conditional writes.

pub mod key;

mod answer;
mod asked;
mod body;
mod builder;
mod coding;
mod collect;
mod config;
mod detach;
mod freshness;
mod gates;
mod layer;
mod memory;
mod note;
mod partial;
mod permit;
mod read;
mod recall;
mod selected;
mod service;
mod shared;
mod slice;
mod tagged;
mod variant;
mod write;

pub use body::ResponseBody;
pub use builder::Builder;
pub use layer::ConditionalLayer;
pub use permit::Permit;
pub use write::AlsoChanged;
pub use service::ConditionalService;
pub use ifmatch_core::digest::TagFormat;
pub use ifmatch_core::policy::RequirePreconditions;
