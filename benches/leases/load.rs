//! Clients that put load on a server.

use std::net::SocketAddr;
use std::time::Duration;

use support::azure::Azure;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connection::Connection;

/// Content of every blob.
const CONTENT: &[u8] = &[b'x'; 1024];
const CONTAINER: &str = "bench";
/// Lease id of every client. Each has its own blob.
const LEASE: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";

/// Operation that a client repeats on its blob.
#[derive(Clone, Copy)]
pub(crate) enum Scene {
    /// Three requests: acquires the lease, writes with it, releases it.
    LeasedWrite,
    /// Replaces the version of its last write.
    ConditionalPut,
}

impl Scene {
    pub(crate) const ALL: [Self; 2] = [Self::LeasedWrite, Self::ConditionalPut];

    /// Returns its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeasedWrite => "acquire + write 1 KiB + release",
            Self::ConditionalPut => "conditional PUT, 1 KiB",
        }
    }
}

/// A server and its blobs.
pub(crate) struct Server {
    pub(crate) name: String,
    address: SocketAddr,
    azure: Azure,
}

impl Server {
    /// Creates a blob for each of a number of clients.
    pub(crate) async fn prepare(name: &str, address: SocketAddr, clients: usize) -> Self {
        let azure = Azure::development(support::Client::new(address));
        azure.create_container(CONTAINER).await.expect(201);
        for client in 0..clients {
            azure.put(&blob(client), &[], CONTENT).await.expect(201);
        }
        Self {
            name: name.to_owned(),
            address,
            azure,
        }
    }

    /// Returns the operations per second of a number of clients.
    pub(crate) async fn rate(&self, scene: Scene, clients: usize, time: Duration) -> f64 {
        let mut connections = Vec::new();
        for _ in 0..clients {
            connections.push(Connection::open(self.address).await);
        }
        let mut running = JoinSet::new();
        let begin = Instant::now();
        for (client, connection) in connections.into_iter().enumerate() {
            let client = Client {
                connection,
                azure: self.azure.clone(),
                blob: blob(client),
                end: begin + time,
            };
            running.spawn(async move {
                match scene {
                    Scene::LeasedWrite => client.leased_writes().await,
                    Scene::ConditionalPut => client.conditional_puts().await,
                }
            });
        }
        let done: u32 = running.join_all().await.into_iter().sum();
        f64::from(done) / begin.elapsed().as_secs_f64()
    }
}

fn blob(client: usize) -> String {
    format!("/{CONTAINER}/{client}")
}

/// A client.
struct Client {
    connection: Connection,
    azure: Azure,
    blob: String,
    end: Instant,
}

impl Client {
    async fn leased_writes(mut self) -> u32 {
        let with = [("x-ms-lease-id", LEASE)];
        let mut done = 0;
        while Instant::now() < self.end {
            let wanted = [
                ("x-ms-lease-duration", "60"),
                ("x-ms-proposed-lease-id", LEASE),
            ];
            let acquire = self.azure.signed_lease(&self.blob, "acquire", &wanted);
            self.connection.exchange(&acquire).await.expect(&[201]);
            let write = self.azure.signed_put(&self.blob, &with, CONTENT);
            self.connection.exchange(&write).await.expect(&[201]);
            let release = self.azure.signed_lease(&self.blob, "release", &with);
            self.connection.exchange(&release).await.expect(&[200]);
            done += 1;
        }
        done
    }

    async fn conditional_puts(mut self) -> u32 {
        let first = self.azure.signed_put(&self.blob, &[], CONTENT);
        let mut tag = self
            .connection
            .exchange(&first)
            .await
            .expect(&[201])
            .unwrap();
        let mut done = 0;
        while Instant::now() < self.end {
            let write = self
                .azure
                .signed_put(&self.blob, &[("if-match", &tag)], CONTENT);
            tag = self
                .connection
                .exchange(&write)
                .await
                .expect(&[201])
                .unwrap();
            done += 1;
        }
        done
    }
}
