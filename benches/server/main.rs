//! Services for `cargo xtask bench`, on hyper with HTTP/1.1: a bare one, and the same behind the layer.
//!
//! ```text
//! server bare 127.0.0.1:3000 '200 etag: "a"' '304 etag: "a"'    with these header fields in each 200 and each 304
//! server hashed 127.0.0.1:3000      behind the layer, which hashes every body
//! server tagged 127.0.0.1:3000      behind the layer, with the service's own tags
//! ```
//!
//! All answer `/1k` with 1 KiB and `/64k` with 64 KiB from memory.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(clippy::print_stdout, reason = "says that it is ready")]

mod bare;
mod inner;

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ifmatch::{ConditionalLayer, RequestBody};
use tokio::net::TcpListener;
use tower::{Layer, Service};

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [kind, address, fields @ ..] if kind == "bare" => {
            serve(address, bare::service(fields)).await
        }
        [kind, address] if kind == "hashed" => serve(address, layered(inner::untagged())).await,
        [kind, address] if kind == "tagged" => serve(address, layered(inner::tagged())).await,
        _ => panic!("see the first lines of benches/server/main.rs"),
    }
}

/// The service behind the layer, with an authoritative register in memory.
fn layered<S>(
    inner: S,
) -> impl Service<
    Request<Incoming>,
    Response = Response<impl Body<Data = Bytes, Error = Infallible> + Send>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static
where
    S: Service<
            Request<RequestBody<Incoming>>,
            Response = Response<Full<Bytes>>,
            Error = Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static,
{
    ConditionalLayer::builder()
        .authoritative()
        .build()
        .layer(inner)
}

async fn serve<S, B>(address: &str, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    println!("listening on http://{}", listener.local_addr().unwrap());
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let connection = http.serve_connection(
            TokioIo::new(stream),
            TowerToHyperService::new(service.clone()),
        );
        // Clients may disconnect.
        tokio::spawn(async { drop(connection.await) });
    }
}
