//! What is kept in memory and on disk to be answered again.

use std::path::PathBuf;

use crate::config::server::needed;
use crate::error::Error;
use crate::settings::Settings;
use crate::units::ByteSize;

/// How much a cache may keep, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bytes of memory.
    pub memory: u64,
    /// Largest body kept there, in bytes.
    pub body: u64,
    /// The folder for larger ones, if any, and the bytes they may take.
    pub disk: Option<(PathBuf, u64)>,
}

impl CacheConfig {
    /// The cache's part of settings that the defaults have completed; `usual` is the memory where none is set. `None`:
    /// nothing is to be kept.
    ///
    /// # Errors
    /// There is a folder for bodies, and no cache.
    pub(crate) fn new(settings: &Settings, usual: ByteSize) -> Result<Option<Self>, Error> {
        let memory = settings.cache.unwrap_or(usual).bytes();
        if memory == 0 {
            return match settings.cache_dir {
                Some(_) => Err(Error::usage("--cache-dir needs --cache, the memory for what is small")),
                None => Ok(None),
            };
        }
        let bytes = needed(settings.cache_disk, "--cache-disk")?.bytes();
        Ok(Some(Self {
            memory,
            body: needed(settings.cache_body_size, "--cache-body-size")?.bytes(),
            disk: settings.cache_dir.clone().map(|folder| (folder, bytes)),
        }))
    }
}
