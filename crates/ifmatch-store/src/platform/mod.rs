//! What each platform does its own way: time, tasks, and calling those who wait.

pub(crate) use native::{Turns, interval, since_1970, sleep, spawn};

#[cfg_attr(all(target_family = "wasm", target_os = "unknown"), path = "wasm/mod.rs")]
mod native;
