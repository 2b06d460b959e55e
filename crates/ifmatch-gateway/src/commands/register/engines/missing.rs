//! What a build has in place of a database that it lacks.

use std::sync::Arc;

use async_trait::async_trait;
use ifmatch_register::{ConnectError, ConnectErrorKind, Register};

use super::DatabaseEngine;

/// A database that this build lacks.
pub(super) struct MissingEngine {
    /// Name of the database.
    pub(super) name: &'static str,
    /// Feature that adds it.
    pub(super) feature: &'static str,
}

impl MissingEngine {
    fn error(&self) -> ConnectError {
        let Self { name, feature } = self;
        let what = format!(
            "this build doesn't support {name}. Add `--features {feature}` to the cargo command that built it"
        );
        ConnectError::new(ConnectErrorKind::Unsuitable, what)
    }
}

#[async_trait]
impl DatabaseEngine for MissingEngine {
    async fn connect(&self, _url: &str) -> Result<Arc<dyn Register>, ConnectError> {
        Err(self.error())
    }

    async fn migrate(&self, _url: &str) -> Result<(), ConnectError> {
        Err(self.error())
    }

    async fn restored(&self, _url: &str) -> Result<Option<u64>, ConnectError> {
        Err(self.error())
    }
}
