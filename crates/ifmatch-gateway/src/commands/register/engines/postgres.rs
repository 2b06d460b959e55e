//! PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use ifmatch_postgres::PostgresRegister;
use ifmatch_register::{ConnectError, Register};

use super::DatabaseEngine;

pub(super) const POSTGRES: PostgresEngine = PostgresEngine;

pub(super) struct PostgresEngine;

#[async_trait]
impl DatabaseEngine for PostgresEngine {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Register>, ConnectError> {
        Ok(Arc::new(PostgresRegister::connect(url).await?))
    }

    async fn migrate(&self, url: &str) -> Result<(), ConnectError> {
        ifmatch_postgres::migrate(url).await
    }

    async fn restored(&self, url: &str) -> Result<Option<u64>, ConnectError> {
        ifmatch_postgres::restored(url).await.map(Some)
    }
}
