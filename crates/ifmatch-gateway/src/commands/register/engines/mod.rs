//! The databases that hold registers. Each is a feature of the build; a build without it says so.

use std::sync::Arc;

use async_trait::async_trait;
use ifmatch_register::{ConnectError, Register};

use ifmatch_gateway_config::register_url::Database;

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(not(all(feature = "etcd", feature = "postgres", feature = "redis")))]
mod missing;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

#[cfg(not(feature = "etcd"))]
mod etcd {
    pub(super) const ETCD: super::missing::MissingEngine = super::missing::MissingEngine {
        name: "etcd",
        feature: "etcd",
    };
}
#[cfg(not(feature = "postgres"))]
mod postgres {
    pub(super) const POSTGRES: super::missing::MissingEngine = super::missing::MissingEngine {
        name: "PostgreSQL",
        feature: "postgres",
    };
}
#[cfg(not(feature = "redis"))]
mod redis {
    pub(super) const REDIS: super::missing::MissingEngine = super::missing::MissingEngine {
        name: "Redis",
        feature: "redis",
    };
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
