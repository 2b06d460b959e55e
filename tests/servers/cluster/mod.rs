//! Several gateways beside each other, with one store and one register on PostgreSQL.

mod bucket;
mod dialects;
mod gateways;
mod outage;
mod purge_storm;
mod purges;

use std::path::Path;

use ifmatch_testbed::{Server, postgres};
use support::{Client, Gateway, run};
use tokio::task::block_in_place;

/// A register on PostgreSQL, and gateways that share it.
struct Cluster {
    gateways: Vec<Gateway>,
    register: Server,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the register and this number of gateways.
    async fn start(gateways: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let register = postgres::start(&["max_connections=200"]).await;
        let url = register.url();
        migrate(&register);
        let gateways = (0..gateways).map(|_| block_in_place(|| gateway(folder.path(), &url))).collect();
        Self { gateways, register, folder }
    }

    /// Starts the register and this number of gateways on a bucket of their own.
    async fn in_bucket(gateways: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let register = postgres::start(&["max_connections=200"]).await;
        let url = register.url();
        migrate(&register);
        let gateways = (0..gateways).map(|_| block_in_place(|| gateway_in_bucket(folder.path(), &url))).collect();
        Self { gateways, register, folder }
    }

    /// Returns a client of each gateway.
    fn clients(&self) -> Vec<Client> {
        self.gateways.iter().map(|gateway| Client::new(gateway.address())).collect()
    }
}

/// Creates the register's tables.
fn migrate(register: &Server) {
    let migrated = block_in_place(|| run(["register", "migrate", "--register", &register.url()]));
    assert_eq!(migrated.status.code(), Some(0), "{}", migrated.stderr);
}

/// Starts a gateway on the store in `folder` and the register.
fn gateway(folder: &Path, register: &str) -> Gateway {
    let store = format!("file://{}", folder.join("bodies").display());
    Gateway::start(["serve", "--store", &store, "--register", register])
}

/// Starts a gateway on the bucket in `folder` and the register.
fn gateway_in_bucket(folder: &Path, register: &str) -> Gateway {
    let bucket = format!("file://{}", folder.join("bucket").display());
    Gateway::start(["serve", "--data", &bucket, "--register", register])
}
