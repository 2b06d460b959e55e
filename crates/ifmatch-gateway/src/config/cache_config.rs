//! Configuration of the cache.

use std::path::PathBuf;

use super::server::required;
use super::settings::Settings;
use super::units::ByteSize;
use crate::error::Error;

/// Capacity of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Memory, in bytes.
    pub memory: u64,
    /// Maximum size of a body in memory, in bytes.
    pub body: u64,
    /// Folder for larger bodies and its capacity in bytes, if any.
    pub disk: Option<(PathBuf, u64)>,
}

impl CacheConfig {
    /// Returns the cache in `settings`, which include the defaults, or `None` if it is disabled. `default_memory`
    /// applies if `--cache` is not set.
    ///
    /// # Errors
    /// Fails if there is a folder for bodies, but no memory.
    pub(crate) fn new(settings: &Settings, default_memory: ByteSize) -> Result<Option<Self>, Error> {
        let memory = settings.cache.unwrap_or(default_memory).bytes();
        if memory == 0 {
            return match settings.cache_dir {
                Some(_) => Err(Error::usage("--cache-dir needs --cache, the memory for small bodies")),
                None => Ok(None),
            };
        }
        let bytes = required(settings.cache_disk, "--cache-disk")?.bytes();
        Ok(Some(Self {
            memory,
            body: required(settings.cache_body_size, "--cache-body-size")?.bytes(),
            disk: settings.cache_dir.clone().map(|folder| (folder, bytes)),
        }))
    }
}
