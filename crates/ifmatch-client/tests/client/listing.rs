//! Listings of a gateway by HTTP.

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ifmatch_client::{Backend, ErrorKind, Http};
use tokio::net::TcpListener;

/// The gateway's names have no percent escapes.
#[tokio::test]
async fn the_url_of_a_listed_folder_may_have_percent_escapes() {
    let server = serve(|uri| {
        if uri == "/my%20box?prefix=all%20jobs%2Fto%20do%2F" {
            (StatusCode::OK, r#"{"blobs":[{"name":"all jobs/to do/1"}]}"#)
        } else {
            (StatusCode::BAD_REQUEST, "")
        }
    })
    .await;
    assert_eq!(server.list("to do/").await.unwrap(), ["to do/1"]);
}

#[tokio::test]
async fn only_a_gateway_can_say_that_a_folder_is_empty() {
    let body = r#"{"type":"urn:ifmatch:problem:not-found","status":404}"#;
    let gateway = serve(move |_| (StatusCode::NOT_FOUND, body)).await;
    assert!(gateway.list("jobs/").await.unwrap().is_empty());
    let other = serve(|_| (StatusCode::NOT_FOUND, "Not Found")).await;
    let error = other.list("jobs/").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn a_listing_that_repeats_a_page_fails() {
    let page = r#"{"blobs":[{"name":"all jobs/1"}],"next":"all jobs/1"}"#;
    let server = serve(move |_| (StatusCode::OK, page)).await;
    let error = server.list("").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Refused, "{error}");
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn a_listing_of_azure_that_repeats_a_page_fails() {
    let page = "<EnumerationResults><Blobs/><NextMarker>1</NextMarker></EnumerationResults>";
    let url = serve_url(move |_| (StatusCode::OK, page)).await;
    let container = ifmatch_client::Azure::new(&url).unwrap();
    let error = container.list("").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Refused, "{error}");
}

/// Serves one connection. Returns the backend for a folder there.
async fn serve(
    answer: impl Fn(&Uri) -> (StatusCode, &'static str) + Send + Sync + 'static,
) -> Http {
    Http::new(&serve_url(answer).await).unwrap()
}

/// Serves one connection. Returns the URL of a folder there.
async fn serve_url(
    answer: impl Fn(&Uri) -> (StatusCode, &'static str) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = service_fn(move |request: Request<Incoming>| {
        let (status, body) = answer(request.uri());
        let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
        *response.status_mut() = status;
        ready(Ok::<_, Infallible>(response))
    });
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await
    });
    format!("http://{address}/my%20box/all%20jobs")
}
