//! The queue of this process's writers at each resource.

pub(crate) use imp::Gates;

#[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), path = "native.rs")]
#[cfg_attr(all(target_family = "wasm", target_os = "unknown"), path = "wasm.rs")]
mod imp;
