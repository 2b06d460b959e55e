//! Redis and Valkey.

use std::sync::Arc;

use async_trait::async_trait;
use ifmatch_redis::RedisRegister;
use ifmatch_register::{ConnectError, Register};

use super::DatabaseEngine;

pub(super) const REDIS: RedisEngine = RedisEngine;

pub(super) struct RedisEngine;

#[async_trait]
impl DatabaseEngine for RedisEngine {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Register>, ConnectError> {
        Ok(Arc::new(RedisRegister::connect(url).await?))
    }

    async fn restored(&self, url: &str) -> Result<Option<u64>, ConnectError> {
        ifmatch_redis::restored(url).await.map(Some)
    }
}
