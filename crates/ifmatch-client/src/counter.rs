//! A counter in several documents, so its writers rarely conflict.

use std::sync::Arc;

use ifmatch_runtime::nonce;

use crate::client::Client;
use crate::document::Document;
use crate::error::Error;

/// Default number of shards.
const SHARDS: u16 = 8;

/// A counter, sharded over several documents.
///
/// ```
/// use ifmatch_client::{Client, Memory};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let hits = Client::new(Memory::default()).counter("hits").shards(16);
/// hits.add(2).await?;
/// hits.add(1).await?;
/// assert_eq!(hits.get().await?, 3);
/// # Ok::<(), ifmatch_client::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    client: Client,
    folder: Arc<str>,
    shards: u16,
}

impl Client {
    /// Returns the counter in a folder.
    pub fn counter(&self, folder: impl Into<Arc<str>>) -> Counter {
        Counter::new(self.clone(), folder.into())
    }
}

impl Counter {
    fn new(client: Client, folder: Arc<str>) -> Self {
        Self {
            client,
            folder,
            shards: SHARDS,
        }
    }

    /// Sets the number of shards. Defaults to 8. Clients that read the counter must use the largest number that any
    /// writer has used.
    #[must_use]
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = shards.max(1);
        self
    }

    /// Adds to the counter, in a random shard.
    ///
    /// # Errors
    /// Same as [`Document::update`].
    pub async fn add(&self, number: i64) -> Result<(), Error> {
        let random = nonce().map_err(|error| Error::refused(error.to_string()))?;
        let shard = u16::try_from(random % u64::from(self.shards)).unwrap_or_default();
        self.shard(shard)
            .update(|count| *count = count.saturating_add(number))
            .await?;
        Ok(())
    }

    /// Returns the sum of all shards. It may or may not include concurrent additions.
    ///
    /// # Errors
    /// Same as [`Document::get`].
    pub async fn get(&self) -> Result<i64, Error> {
        let mut sum = 0_i64;
        for shard in 0..self.shards {
            sum = sum.saturating_add(
                self.shard(shard)
                    .get()
                    .await?
                    .map_or(0, |count| count.value),
            );
        }
        Ok(sum)
    }

    fn shard(&self, shard: u16) -> Document<i64> {
        self.client.json(format!("{}/{shard}", self.folder))
    }
}
