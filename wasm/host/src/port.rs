//! A port in front of instances, for clients that speak HTTP over TCP.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use wasmtime_wasi_http::Error;

use crate::{Body, Instance};

/// Pause after an error that concerns no single client, such as too many open files.
const PAUSE: Duration = Duration::from_millis(10);

/// A port of this machine. Its instances take the requests in turn, as behind a load balancer. Closes when it is dropped.
pub struct Port {
    url: String,
    accepting: JoinHandle<()>,
}

impl Port {
    /// Opens a free port.
    ///
    /// # Errors
    /// The system has no free port.
    ///
    /// # Panics
    /// If there is no instance.
    pub async fn open(instances: Vec<Instance>) -> io::Result<Self> {
        assert!(!instances.is_empty(), "a port without an instance");
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Self {
            url,
            accepting: tokio::spawn(accept(
                listener,
                Arc::new(Turns {
                    instances,
                    taken: AtomicUsize::new(0),
                }),
            )),
        })
    }

    /// Returns its URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Instances, and the number of requests that they have taken.
struct Turns {
    instances: Vec<Instance>,
    taken: AtomicUsize,
}

async fn accept(listener: TcpListener, turns: Arc<Turns>) {
    // Ends all connections with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let turns = Arc::clone(&turns);
                let service = service_fn(move |request| answer(Arc::clone(&turns), request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Passes both bodies on as they arrive. The error of an instance is 502.
async fn answer(
    turns: Arc<Turns>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let turn = turns.taken.fetch_add(1, Ordering::Relaxed);
    let instance = &turns.instances[turn % turns.instances.len()];
    let sent = instance
        .send(request.map(|body| body.map_err(Error::Hyper).boxed_unsync()))
        .await;
    Ok(sent.unwrap_or_else(|error| {
        let mut response = Response::new(
            Full::from(error)
                .map_err(|never| match never {})
                .boxed_unsync(),
        );
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    }))
}
