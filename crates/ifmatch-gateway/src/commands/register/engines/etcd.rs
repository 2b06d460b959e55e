//! etcd.

use std::sync::Arc;

use async_trait::async_trait;
use ifmatch_etcd::EtcdRegister;
use ifmatch_register::{ConnectError, Register};

use super::DatabaseEngine;

pub(super) const ETCD: EtcdEngine = EtcdEngine;

pub(super) struct EtcdEngine;

#[async_trait]
impl DatabaseEngine for EtcdEngine {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Register>, ConnectError> {
        Ok(Arc::new(EtcdRegister::connect(url).await?))
    }
}
