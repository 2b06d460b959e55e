//! The layer around a function, on plain hyper.
//!
//! The function takes a [`RequestBody`] around hyper's own.
//!
//! Run it: `cargo run -p ifmatch-examples --example hyper_service`, then `curl -i localhost:3001/`

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use ifmatch::{ConditionalLayer, RequestBody};
use tokio::net::TcpListener;
use tower::{Layer, service_fn};

async fn handle(
    request: Request<RequestBody<Incoming>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::from("hello"));
    if request.method() != Method::GET {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    }
    Ok(response)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let service = ConditionalLayer::new().layer(service_fn(handle));
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:3001".to_owned());
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            // An error means that the client aborted the connection.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
