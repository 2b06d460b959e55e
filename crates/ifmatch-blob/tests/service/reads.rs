//! GET and HEAD during writes: one whole version with its own tag.

use std::fs;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use ifmatch_core::digest::ContentHash;
use tower::ServiceExt;

use crate::support::{bytes, fixture, hash_in, request};

/// Fails if the old body is opened again, or shares a file with the new one.
#[tokio::test]
async fn a_read_in_progress_is_not_affected_by_a_replacement() {
    let fixture = fixture().await;
    let size = 3_000_000;
    let tag = fixture.put("/c/b", bytes(size, 1)).await.tag();
    let response = fixture
        .service
        .clone()
        .oneshot(request(Method::GET, "/c/b", &[], ""))
        .await
        .expect("infallible");
    assert_eq!(response.headers()["etag"], tag);
    let mut body = response.into_body();
    let first: Bytes = body
        .frame()
        .await
        .expect("a frame")
        .expect("no error")
        .into_data()
        .expect("data");
    fixture.put("/c/b", bytes(size, 2)).await;
    fixture.send(request(Method::DELETE, "/c/b", &[], "")).await;
    assert_eq!(fixture.files(), 0);
    let rest = body.collect().await.expect("a whole body").to_bytes();
    let whole = [first, rest].concat();
    assert_eq!(ContentHash::of(&whole).hex(), hash_in(&tag));
}

#[tokio::test]
async fn parts_of_a_multipart_stay_parts_of_one_version() {
    let fixture = fixture().await;
    let size = 3_000_000;
    fixture.put("/c/b", bytes(size, 1)).await;
    let ranges = [("range", "bytes=0-999999,2000000-2000009")];
    let response = fixture
        .service
        .clone()
        .oneshot(request(Method::GET, "/c/b", &ranges, ""))
        .await
        .expect("infallible");
    fixture.put("/c/b", bytes(size, 2)).await;
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a whole body")
        .to_bytes();
    let part = &bytes(size, 1)[2_000_000..2_000_010];
    assert!(
        body.windows(part.len()).any(|window| window == part),
        "the second part is of the new version"
    );
}

#[tokio::test]
async fn a_small_body_is_read_from_memory_until_its_version_is_replaced() {
    let fixture = fixture().await;
    for version in [1, 2] {
        let content = bytes(60_000, version);
        let tag = fixture.put("/c/b", content.clone()).await.tag();
        assert_eq!(fixture.get("/c/b").await.body, content);
        for shard in fs::read_dir(fixture.folder.path().join("bodies")).expect("a folder") {
            for file in fs::read_dir(shard.expect("an entry").path()).expect("a folder") {
                fs::remove_file(file.expect("an entry").path()).expect("removed");
            }
        }
        let answer = fixture.get("/c/b").await;
        assert_eq!(
            (answer.tag(), ContentHash::of(&answer.body).hex()),
            (tag.clone(), hash_in(&tag))
        );
        let part = fixture
            .send(request(
                Method::GET,
                "/c/b",
                &[("range", "bytes=100-199")],
                "",
            ))
            .await;
        assert_eq!((part.tag(), &part.body[..]), (tag, &content[100..200]));
    }
}
