//! Limits of bodies, and bodies that end early.

use std::time::Duration;

use http::Method;
use http_body_util::Full;

use crate::support::{fixture, send};

#[tokio::test]
async fn rejects_bodies_over_the_limit() {
    let client = fixture().await.client;
    let large = vec![0_u8; (1 << 20) + 1];
    client.upload("/box/a", large.clone(), &[]).await.refused(413, "RequestBodyTooLarge");
    client.put("/box/a?comp=block&blockid=AA==", &[], large).await.refused(413, "RequestBodyTooLarge");
    client.get("/box/a").await.refused(404, "BlobNotFound");
    client.put("/box/a?comp=block&blockid=AA==", &[], vec![0; 512 * 1024]).await.expect(201);
    let list = |blocks: usize| format!("<BlockList>{}</BlockList>", "<Latest>AA==</Latest>".repeat(blocks));
    client.put("/box/a?comp=blocklist", &[], list(3)).await.refused(413, "RequestBodyTooLarge");
    client.put("/box/a?comp=blocklist", &[], list(2)).await.expect(201);
    assert_eq!(client.send(Method::HEAD, "/box/a", &[], "").await.header("content-length"), "1048576");
}

#[tokio::test]
async fn an_incomplete_body_is_not_stored() {
    let client = fixture().await.client;
    client.upload("/box/a", "first", &[]).await.expect(201);
    let fields = [("x-ms-blob-type", "BlockBlob")];
    let mut request = client.signed(Method::PUT, "/box/a", &fields, "second".into(), Duration::ZERO);
    *request.body_mut() = Full::from("sec");
    send(&client.service, request).await.refused(400, "IncompleteBody");
    assert_eq!(client.get("/box/a").await.expect(200).body, "first");
}
