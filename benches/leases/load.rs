//! What clients do to a server, and how often they get it done.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use support::Client;
use support::azure::Azure;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What every blob holds.
const CONTENT: &[u8] = &[b'x'; 1024];
const CONTAINER: &str = "bench";
/// What every client's lease is called: each has a blob of its own.
const LEASE: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";

/// What a client does again and again to its blob.
#[derive(Clone, Copy)]
pub(crate) enum Scene {
    /// Three requests: acquires the lease, writes with it, releases it.
    LeasedWrite,
    /// Replaces the version that it wrote last.
    ConditionalPut,
}

impl Scene {
    pub(crate) const ALL: [Self; 2] = [Self::LeasedWrite, Self::ConditionalPut];

    /// As the table calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeasedWrite => "acquire + write 1 KiB + release",
            Self::ConditionalPut => "conditional PUT, 1 KiB",
        }
    }
}

/// A server, and its blobs.
pub(crate) struct Server {
    pub(crate) name: String,
    azure: Azure,
}

impl Server {
    /// A server with a blob for each of so many clients.
    pub(crate) async fn prepare(name: &str, address: SocketAddr, clients: usize) -> Self {
        let azure = Azure::development(Client::new(address));
        azure.create_container(CONTAINER).await.expect(201);
        for client in 0..clients {
            azure.put(&blob(client), &[], CONTENT).await.expect(201);
        }
        Self { name: name.to_owned(), azure }
    }

    /// How often a second so many clients together get it done.
    pub(crate) async fn rate(&self, scene: Scene, clients: usize, time: Duration) -> f64 {
        let mut running = JoinSet::new();
        let begin = Instant::now();
        for client in 0..clients {
            let (azure, end) = (self.azure.clone(), begin + time);
            running.spawn(async move {
                match scene {
                    Scene::LeasedWrite => leased_writes(&azure, &blob(client), end).await,
                    Scene::ConditionalPut => conditional_puts(&azure, &blob(client), end).await,
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

async fn leased_writes(azure: &Azure, blob: &str, end: Instant) -> u32 {
    let with = [("x-ms-lease-id", LEASE)];
    let mut done = 0;
    while Instant::now() < end {
        let wanted = [("x-ms-lease-duration", "60"), ("x-ms-proposed-lease-id", LEASE)];
        azure.lease(blob, "acquire", &wanted).await.expect(201);
        azure.put(blob, &with, CONTENT).await.expect(201);
        azure.lease(blob, "release", &with).await.expect(200);
        done += 1;
    }
    done
}

async fn conditional_puts(azure: &Azure, blob: &str, end: Instant) -> u32 {
    let mut tag = azure.blob(Method::HEAD, blob, &[], "").await.expect(200).etag().to_owned();
    let mut done = 0;
    while Instant::now() < end {
        let written = azure.put(blob, &[("if-match", &tag)], CONTENT).await.expect(201);
        written.etag().clone_into(&mut tag);
        done += 1;
    }
    done
}
