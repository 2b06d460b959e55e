//! The memory of responses: the header fields that make a 304, bounded by bytes. `moka` holds it on native targets,
//! `quick_cache` on WebAssembly.

mod entry;
#[cfg_attr(
    not(all(target_family = "wasm", target_os = "unknown")),
    path = "moka.rs"
)]
#[cfg_attr(
    all(target_family = "wasm", target_os = "unknown"),
    path = "quick_cache.rs"
)]
mod imp;
/// The memory on WebAssembly, tested on native targets too.
#[cfg(test)]
#[path = "quick_cache.rs"]
mod quick_cache;
#[cfg(test)]
mod tests;

pub(crate) use entry::RememberedHead;
pub(crate) use imp::ResponseMemory;
