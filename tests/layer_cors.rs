//! The layer inside tower-http's `CorsLayer`, as docs/browsers.md shows it.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, ORIGIN};
use http::{Method, Request, Response};
use http_body_util::Full;
use ifmatch::{ConditionalLayer, RequirePreconditions};
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;

const PAGE: &str = "https://app.example";

async fn note<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_ne!(request.method(), Method::OPTIONS, "the preflight request reached the service");
    Ok(Response::new(Full::from("note")))
}

#[tokio::test]
async fn pages_of_another_origin_see_tags_and_refusals() {
    let cors = CorsLayer::new()
        .allow_origin([PAGE.parse().unwrap()])
        .allow_methods([Method::GET, Method::PUT, Method::DELETE])
        .allow_headers([CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH])
        .expose_headers([ETAG]);
    let layer = ConditionalLayer::builder().require_preconditions(RequirePreconditions::for_writes()).build();
    let app = Router::new().fallback_service(layer.layer(service_fn(note))).layer(cors);
    let send = async |method: Method, fields: &[(&str, &str)]| {
        let builder = Request::builder().method(method).uri("/note").header(ORIGIN, PAGE);
        let request = fields.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], PAGE, "{response:?}");
        (response.status().as_u16(), response.headers().clone())
    };
    let asks = [("access-control-request-method", "PUT"), ("access-control-request-headers", "if-match")];
    assert_eq!(send(Method::OPTIONS, &asks).await.0, 200);
    let (status, headers) = send(Method::GET, &[]).await;
    assert_eq!((status, &headers["access-control-expose-headers"]), (200, &"etag".parse().unwrap()));
    let tag = headers[ETAG].to_str().unwrap();
    assert_eq!(send(Method::GET, &[("if-none-match", tag)]).await.0, 304);
    assert_eq!(send(Method::PUT, &[("if-match", "\"stale\"")]).await.0, 412);
    assert_eq!(send(Method::PUT, &[]).await.0, 428);
}
