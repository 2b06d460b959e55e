//! Several gateways beside each other, with one store and one register on PostgreSQL.

mod bucket;
mod dialects;
mod gateways;
mod history;
mod outage;
mod purge_storm;
mod purges;

use std::path::Path;
use std::time::Duration;

use ifmatch_testbed::{Server, postgres, within};
use support::{Client, Gateway, full, run};
use tokio::task::{JoinSet, block_in_place};

/// A register on PostgreSQL, and gateways that share it.
struct Cluster {
    gateways: Vec<Gateway>,
    register: Server,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the register and this number of gateways.
    async fn start(gateways: usize) -> Self {
        Self::of(gateways, gateway).await
    }

    /// Starts the register and this number of gateways on a bucket of their own.
    async fn in_bucket(gateways: usize) -> Self {
        Self::of(gateways, gateway_in_bucket).await
    }

    async fn of(gateways: usize, start: fn(&Path, &str) -> Gateway) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let register = postgres::start(&["max_connections=200"]).await;
        let url = register.url();
        migrate(&register);
        let gateways = (0..gateways)
            .map(|_| block_in_place(|| start(folder.path(), &url)))
            .collect();
        Self {
            gateways,
            register,
            folder,
        }
    }

    /// Lets eight writers of one blob each write numbers through the first gateway, and kills it. Returns the last number that each has
    /// acknowledged. `body` is the text of a number.
    async fn kill_during_writes(
        &mut self,
        body: fn(usize) -> String,
    ) -> Vec<(usize, Option<usize>)> {
        let clients = self.clients();
        let mut writers = JoinSet::new();
        for writer in 0..8_usize {
            let client = clients[0].clone();
            writers.spawn(async move {
                let mut last = None;
                for number in 0.. {
                    let request =
                        http::Request::put(format!("/docs/{writer}")).body(full(body(number)));
                    match client.try_send(request.unwrap()).await {
                        Ok(answer) if answer.status.is_success() => last = Some(number),
                        Ok(answer) => panic!("{answer:?}"),
                        Err(_) => break,
                    }
                }
                (writer, last)
            });
        }
        within("the first write of the last writer", async {
            while clients[1].get("/docs/7", &[]).await.status != 200 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        block_in_place(|| self.gateways[0].kill());
        let ended = writers.join_all().await;
        assert!(
            ended.iter().any(|(_, last)| last.is_some()),
            "no write was acknowledged"
        );
        ended
    }

    /// Returns a client of each gateway.
    fn clients(&self) -> Vec<Client> {
        self.gateways
            .iter()
            .map(|gateway| Client::new(gateway.address()))
            .collect()
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
