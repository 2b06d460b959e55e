//! The layer beside others: inside tower-http's `CorsLayer`, as docs/browsers.md shows it, around its `ServeDir`, and around gRPC.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, ORIGIN,
};
use http::{Method, Request, Response};
use http_body_util::Full;
use ifmatch::{ConditionalLayer, RequirePreconditions};
use tonic::service::Routes;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;
use tower_http::services::ServeDir;

use crate::serve;

const PAGE: &str = "https://app.example";

async fn note<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_ne!(
        request.method(),
        Method::OPTIONS,
        "the preflight request reached the service"
    );
    Ok(Response::new(Full::from("note")))
}

#[tokio::test]
async fn pages_of_another_origin_see_tags_and_refusals() {
    let cors = CorsLayer::new()
        .allow_origin([PAGE.parse().unwrap()])
        .allow_methods([Method::GET, Method::PUT, Method::DELETE])
        .allow_headers([CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH])
        .expose_headers([ETAG]);
    let layer = ConditionalLayer::builder()
        .require_preconditions(RequirePreconditions::for_writes())
        .build();
    let app = Router::new()
        .fallback_service(layer.layer(service_fn(note)))
        .layer(cors);
    let send = async |method: Method, fields: &[(&str, &str)]| {
        let builder = Request::builder()
            .method(method)
            .uri("/note")
            .header(ORIGIN, PAGE);
        let request = fields.iter().fold(builder, |builder, (name, value)| {
            builder.header(*name, *value)
        });
        let response = app
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(
            response.headers()[ACCESS_CONTROL_ALLOW_ORIGIN],
            PAGE,
            "{response:?}"
        );
        (response.status().as_u16(), response.headers().clone())
    };
    let asks = [
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "if-match"),
    ];
    assert_eq!(send(Method::OPTIONS, &asks).await.0, 200);
    let (status, headers) = send(Method::GET, &[]).await;
    assert_eq!(
        (status, &headers["access-control-expose-headers"]),
        (200, &"etag".parse().unwrap())
    );
    let tag = headers[ETAG].to_str().unwrap();
    assert_eq!(send(Method::GET, &[("if-none-match", tag)]).await.0, 304);
    assert_eq!(send(Method::PUT, &[("if-match", "\"stale\"")]).await.0, 412);
    assert_eq!(send(Method::PUT, &[]).await.0, 428);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_have_tags_conditions_and_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    std::fs::write(folder.path().join("large"), &content).expect("a file");
    let server = serve(ConditionalLayer::new().layer(ServeDir::new(folder.path()))).await;
    let client = server.client();

    let whole = client.get("/large", &[]).await.expect(200);
    assert_eq!(whole.body, content);
    let tag = whole.etag().to_owned();
    let head = client.head("/large", &[]).await.expect(200);
    assert_eq!(
        (head.etag(), head.header("content-length")),
        (tag.as_str(), "3000000")
    );
    let matched = client
        .get("/large", &[("if-none-match", &tag)])
        .await
        .expect(304);
    assert_eq!(matched.etag(), tag);

    for fields in [
        &[][..],
        &[("if-range", tag.as_str())],
        &[("if-match", &tag)],
    ] {
        let fields: Vec<_> = fields
            .iter()
            .copied()
            .chain([("range", "bytes=2000000-2000003")])
            .collect();
        let part = client.get("/large", &fields).await.expect(206);
        assert_eq!(
            part.body,
            Bytes::copy_from_slice(&content[2_000_000..2_000_004])
        );
    }
    let stale = [("range", "bytes=0-0"), ("if-range", "\"other\"")];
    assert_eq!(
        client.get("/large", &stale).await.expect(200).body.len(),
        content.len()
    );
    client
        .get(
            "/large",
            &[("range", "bytes=0-0"), ("if-match", "\"other\"")],
        )
        .await
        .expect(412);

    std::fs::write(folder.path().join("large"), b"short now").expect("a file");
    let changed = client
        .get("/large", &[("if-none-match", &tag)])
        .await
        .expect(200);
    assert_eq!(changed.body, "short now");
    assert_ne!(changed.etag(), tag);
    client
        .put("/large", &[("if-match", &tag)], "x")
        .await
        .expect(412);
    client
        .get("/missing", &[("if-none-match", "*")])
        .await
        .expect(404);
}

#[tokio::test]
async fn a_call_reaches_the_routes_of_tonic() {
    let service = ConditionalLayer::new().layer(Routes::default());
    let call = Request::post("/package.Service/Method").header("content-type", "application/grpc");
    let response = service
        .oneshot(call.body(Full::<Bytes>::default()).expect("a request"))
        .await
        .expect("an answer");
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["grpc-status"]
        ),
        (200, &"12".parse().expect("a value"))
    );
    assert!(!response.headers().contains_key("etag"));
}
