//! Bodies as files in a folder.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ifmatch_blob::records::nonce;
use ifmatch_blob::store::{Source, StoreError};
use ifmatch_core::digest::ContentHash;
use tokio::task::spawn_blocking;

use super::bodies::{Bodies, Incoming, Keep, Staged};
use super::body_files::{BodyName, Folder};
use super::error::disk;
use super::source::{self, Budget};
use super::spool::{self, Spool};

#[async_trait]
impl Bodies for Folder {
    fn check_space(&self) -> Result<(), StoreError> {
        self.check_free_space().map_err(disk)
    }

    fn begin(self: Arc<Self>) -> Result<Box<dyn Incoming>, StoreError> {
        Ok(Box::new(Spool::begin(self, nonce()?)))
    }

    /// An open file stays readable after its removal.
    async fn open(
        &self,
        body: BodyName,
        length: u64,
        budget: Option<Budget>,
        keep: Keep,
    ) -> Result<Option<Box<dyn Source>>, StoreError> {
        source::open(self.body(&body), length, budget, keep).await
    }

    async fn duplicate(self: Arc<Self>, body: BodyName) -> Result<Option<Staged>, StoreError> {
        spool::link(self, body, nonce()?).await
    }

    /// During a snapshot, a body is removed afterwards.
    async fn remove(&self, body: BodyName) {
        if self.removals().postpone(body) {
            return;
        }
        let path = self.body(&body);
        let removed = spawn_blocking(move || fs::remove_file(path)).await.map_err(io::Error::other).flatten();
        if let Err(error) = removed {
            tracing::warn!(%error, hash = body.hash.hex(), "a body remains; the next start collects it");
        }
    }

    /// Readers have opened the file, or load the record again.
    async fn retire(self: Arc<Self>, body: BodyName) {
        self.remove(body).await;
    }

    /// The next start collects a file that can't be removed now.
    fn abandon(self: Arc<Self>, body: BodyName) {
        let _ = fs::remove_file(self.body(&body));
    }

    /// Only a start collects files.
    fn lifetime(&self) -> Option<Duration> {
        None
    }
}

#[async_trait]
impl Incoming for Spool {
    async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StoreError> {
        Spool::write(self, chunk).await
    }

    async fn finish(self: Box<Self>, promised: Option<ContentHash>) -> Result<Staged, StoreError> {
        Spool::finish(*self, promised).await
    }
}
