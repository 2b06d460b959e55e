//! The register on real servers of etcd: what all engines do, faults of clusters, and settings.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod settings;

use std::sync::Arc;

use ifmatch_etcd::{ConnectError, EtcdRegister};
use ifmatch_register::Register;
use ifmatch_testbed::{Server, engine, etcd};

struct Etcd;

impl engine::Engine for Etcd {
    const WRONG_URLS: &[&str] = &[
        "",
        "localhost",
        "http://localhost",
        "etcd://",
        "etcd://a,,b",
        "etcd://user@host",
        "etcd://host/?x=y",
    ];

    async fn start(settings: &'static [&'static str]) -> Server {
        etcd::start(settings).await
    }

    async fn start_small() -> Server {
        etcd::start(&["--quota-backend-bytes", "1048576"]).await
    }

    /// The limit applies from the start of a member.
    async fn enlarge(_server: &Server) -> bool {
        false
    }

    async fn connect(url: &str) -> Result<Arc<dyn Register>, ConnectError> {
        Ok(Arc::new(Box::pin(EtcdRegister::connect(url)).await?))
    }
}

ifmatch_testbed::engine_tests!(Etcd);

/// Connects, once the cluster has a leader.
async fn connect(url: &str) -> Arc<dyn Register> {
    engine::connect::<Etcd>(url).await
}
