//! Listings of a gateway by HTTP.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ifmatch_client::{Backend, Http};
use tokio::net::TcpListener;

/// The gateway's names have no percent escapes.
#[tokio::test]
async fn the_url_of_a_listed_folder_may_have_percent_escapes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/my%20box/all%20jobs",
        listener.local_addr().unwrap()
    );
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(list))
            .await
    });
    let keys = Http::new(&url).unwrap().list("to do/").await.unwrap();
    assert_eq!(keys, ["to do/1"]);
}

async fn list(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::from(r#"{"blobs":[{"name":"all jobs/to do/1"}]}"#));
    if request.uri() != "/my%20box?prefix=all%20jobs%2Fto%20do%2F" {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    Ok(response)
}
