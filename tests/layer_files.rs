//! The layer around tower-http's `ServeDir`, over real sockets: large files are streamed, and ranges work.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use ifmatch::ConditionalLayer;
use support::Server;
use tower::{Layer, ServiceBuilder};
use tower_http::services::ServeDir;

async fn serve(folder: &std::path::Path) -> Server {
    let adapt = |request: Request<Incoming>| request.map(axum::body::Body::new);
    let layered = ConditionalLayer::new().layer(ServeDir::new(folder));
    Server::start(ServiceBuilder::new().map_request(adapt).service(layered)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_have_tags_conditions_and_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    std::fs::write(folder.path().join("large"), &content).expect("a file");
    let server = serve(folder.path()).await;
    let client = server.client();

    let whole = client.get("/large", &[]).await.expect(200);
    assert_eq!(whole.body, content);
    let tag = whole.etag().to_owned();
    let head = client.head("/large", &[]).await.expect(200);
    assert_eq!((head.etag(), head.header("content-length")), (tag.as_str(), "3000000"));
    let matched = client.get("/large", &[("if-none-match", &tag)]).await.expect(304);
    assert_eq!(matched.etag(), tag);

    for fields in [&[][..], &[("if-range", tag.as_str())], &[("if-match", &tag)]] {
        let fields: Vec<_> = fields.iter().copied().chain([("range", "bytes=2000000-2000003")]).collect();
        let part = client.get("/large", &fields).await.expect(206);
        assert_eq!(part.body, Bytes::copy_from_slice(&content[2_000_000..2_000_004]));
    }
    let stale = [("range", "bytes=0-0"), ("if-range", "\"other\"")];
    assert_eq!(client.get("/large", &stale).await.expect(200).body.len(), content.len());
    client.get("/large", &[("range", "bytes=0-0"), ("if-match", "\"other\"")]).await.expect(412);

    std::fs::write(folder.path().join("large"), b"short now").expect("a file");
    let changed = client.get("/large", &[("if-none-match", &tag)]).await.expect(200);
    assert_eq!(changed.body, "short now");
    assert_ne!(changed.etag(), tag);
    client.put("/large", &[("if-match", &tag)], "x").await.expect(412);
    client.get("/missing", &[("if-none-match", "*")]).await.expect(404);
}
