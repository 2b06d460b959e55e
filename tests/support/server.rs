//! A server in the test process, for any tower service.

use std::net::SocketAddr;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tower::Service;

use crate::Client;

/// A server on a free loopback port. Dropping it closes its connections.
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves HTTP/1.1 with this service.
    pub async fn start<S, B>(service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let service = TowerToHyperService::new(service);
        let task = tokio::spawn(async move {
            // Dropped with the task, which closes all connections.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone()),
                );
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, task }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
