//! The layer around gRPC: calls pass, concurrently, with their trailers.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use ifmatch::ConditionalLayer;
use tonic::service::Routes;
use tower::{Layer, ServiceExt};

#[tokio::test]
async fn a_call_reaches_the_routes_of_tonic() {
    let service = ConditionalLayer::new().layer(Routes::default());
    let call = Request::post("/package.Service/Method").header("content-type", "application/grpc");
    let response = service.oneshot(call.body(Full::<Bytes>::default()).expect("a request")).await.expect("an answer");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["grpc-status"]),
        (200, &"12".parse().expect("a value"))
    );
    assert!(!response.headers().contains_key("etag"));
}
