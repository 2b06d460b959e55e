//! Cached fetch: any HTTP client behind a private cache (RFC 9111).
//!
//! The usual sample keeps the last body with its tag. It ignores `max-age`, `Vary` and its own writes.
//!
//! Run it: `cargo run -p ifmatch-examples --example cached_fetch -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ifmatch_cache::CacheLayer;
use tower::{Layer, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = CacheLayer::builder().private().build().layer(client);
    let send = async |method: Method, headers: &[(&str, &str)], body: &'static str| {
        let mut request = Request::builder().method(method).uri(format!("{url}/news"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = client
            .clone()
            .oneshot(request.body(Full::from(body))?)
            .await?;
        let is_hit = response.headers()["cache-status"]
            .as_bytes()
            .starts_with(b"ifmatch; hit");
        let text = response.into_body().collect().await?.to_bytes();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((is_hit, text))
    };
    for news in ["rain", "sun"] {
        send(
            Method::PUT,
            &[("cache-control", "private, max-age=60")],
            news,
        )
        .await?;
        for _ in 0..2 {
            let (is_hit, text) = send(Method::GET, &[], "").await?;
            println!(
                "{}, from the cache: {is_hit}",
                String::from_utf8_lossy(&text)
            );
        }
    }
    Ok(())
}
