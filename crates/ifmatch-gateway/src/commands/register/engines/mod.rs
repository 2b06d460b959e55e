//! The databases that hold registers. Each is a feature of the build; a build without it says so.

use std::sync::Arc;

use async_trait::async_trait;
use ifmatch_register::{ConnectError, ConnectErrorKind, Register};

use crate::config::register_url::Database;

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

#[cfg(not(feature = "etcd"))]
mod etcd {
    pub(super) const ETCD: super::Missing = super::Missing { name: "etcd", feature: "etcd" };
}
#[cfg(not(feature = "postgres"))]
mod postgres {
    pub(super) const POSTGRES: super::Missing = super::Missing { name: "PostgreSQL", feature: "postgres" };
}
#[cfg(not(feature = "redis"))]
mod redis {
    pub(super) const REDIS: super::Missing = super::Missing { name: "Redis", feature: "redis" };
}

/// A database that holds registers.
#[async_trait]
pub(super) trait DatabaseEngine: Sync {
    /// Opens a register.
    async fn connect(&self, url: &str) -> Result<Arc<dyn Register>, ConnectError>;

    /// Creates or updates its tables, if it has any.
    async fn migrate(&self, _url: &str) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Begins an epoch, and returns its number. A database without epochs returns `None`.
    async fn restored(&self, _url: &str) -> Result<Option<u64>, ConnectError> {
        Ok(None)
    }
}

/// Returns how to reach a database.
pub(super) fn of(database: Database) -> &'static dyn DatabaseEngine {
    match database {
        Database::Etcd => &etcd::ETCD,
        Database::Postgres => &postgres::POSTGRES,
        Database::Redis => &redis::REDIS,
    }
}

/// A database that this build lacks.
#[cfg_attr(all(feature = "etcd", feature = "postgres", feature = "redis"), expect(dead_code, reason = "a full build"))]
struct Missing {
    name: &'static str,
    feature: &'static str,
}

impl Missing {
    fn error(&self) -> ConnectError {
        let Self { name, feature } = self;
        let what = format!("this build has no {name}: add `--features {feature}` to the cargo command that made it");
        ConnectError::new(ConnectErrorKind::Unsuitable, what)
    }
}

#[async_trait]
impl DatabaseEngine for Missing {
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
