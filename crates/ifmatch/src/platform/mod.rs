//! What each platform does its own way: calling those who wait.

pub(crate) use native::Gates;

#[cfg_attr(all(target_family = "wasm", target_os = "unknown"), path = "wasm/mod.rs")]
mod native;
