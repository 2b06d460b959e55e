//! Effects and responses of PUT and DELETE.

use std::sync::Arc;

use std::time::Duration;

use http::{Method, StatusCode};
use ifmatch_blob::BlobService;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::policy::RequirePreconditions;

use crate::support::{SIZES, bytes, fixture, hash_in, request, send};

#[tokio::test]
async fn a_blob_of_any_size_is_read_as_written() {
    let fixture = fixture().await;
    for size in SIZES {
        let path = format!("/sizes/{size}");
        let body = bytes(size, 1);
        let put = fixture.put(&path, body.clone()).await;
        assert_eq!(put.status, StatusCode::CREATED);
        assert_eq!(put.header("repr-digest"), ContentHash::of(&body).repr_digest().expect("SHA-256"));
        let got = fixture.get(&path).await;
        assert_eq!((got.status, got.tag()), (StatusCode::OK, put.tag()));
        assert_eq!(got.body, body, "{size} bytes");
    }
    assert_eq!(fixture.files(), SIZES.iter().filter(|size| **size > 4096).count());
}

#[tokio::test]
async fn a_second_put_replaces_the_blob_and_its_file() {
    let fixture = fixture().await;
    let first = fixture.put("/c/b", bytes(100_000, 1)).await;
    let second = fixture.put("/c/b", bytes(100_000, 2)).await;
    assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(fixture.get("/c/b").await.body, bytes(100_000, 2));
    assert_eq!(fixture.files(), 1);
    fixture.put("/c/b", "small").await;
    assert_eq!(fixture.files(), 0);
}

#[tokio::test]
async fn the_same_bytes_get_a_new_tag_with_every_write() {
    let fixture = fixture().await;
    for size in [10, 100_000] {
        let first = fixture.put("/c/b", bytes(size, 1)).await.tag();
        let second = fixture.put("/c/b", bytes(size, 1)).await.tag();
        assert_ne!(first, second);
        assert_eq!(hash_in(&first), hash_in(&second));
        assert_eq!(fixture.get("/c/b").await.body, bytes(size, 1), "the shared bytes went with the first version");
    }
}

#[tokio::test]
async fn the_longest_name_can_be_stored() {
    let fixture = fixture().await;
    for (path, length) in [("%C3%BC", 970), ("%F0%9F%98%80", 485)].map(|(char, count)| (char.repeat(count), count)) {
        let path = format!("/{}/{path}", "c".repeat(88));
        assert_eq!(fixture.put(&path, "x").await.status, StatusCode::CREATED, "{length} characters");
        assert_eq!(fixture.get(&path).await.body, "x");
    }
}

#[tokio::test]
async fn a_deleted_blob_is_removed_with_its_file() {
    let fixture = fixture().await;
    fixture.put("/c/b", bytes(100_000, 1)).await;
    let delete = || request(Method::DELETE, "/c/b", &[], "");
    assert_eq!(fixture.send(delete()).await.status, StatusCode::NO_CONTENT);
    assert_eq!(fixture.files(), 0);
    assert_eq!(fixture.get("/c/b").await.status, StatusCode::NOT_FOUND);
    let again = fixture.send(delete()).await;
    assert_eq!((again.status, again.problem().as_str()), (StatusCode::NOT_FOUND, "not-found"));
    assert_eq!(fixture.put("/c/b", "anew").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn the_date_is_sent_once_its_second_has_begun() {
    let fixture = fixture().await;
    assert!(!fixture.put("/c/b", "x").await.headers.contains_key("last-modified"));
    assert!(!fixture.get("/c/b").await.headers.contains_key("last-modified"));
    fixture.clock.advance(Duration::from_millis(500));
    let got = fixture.get("/c/b").await;
    assert_eq!(got.header("last-modified"), "Sun, 13 Sep 2020 12:26:41 GMT");
    // A date is as good as a tag: the next version has another one.
    let holds = [("if-unmodified-since", "Sun, 13 Sep 2020 12:26:41 GMT")];
    assert_eq!(fixture.send(request(Method::PUT, "/c/b", &holds, "y")).await.status, StatusCode::OK);
    let lost = fixture.send(request(Method::PUT, "/c/b", &holds, "z")).await;
    assert_eq!(lost.status, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn a_policy_requires_a_condition_for_writes() {
    let fixture = fixture().await;
    let service = fixture.service.clone().require_preconditions(RequirePreconditions::for_writes());
    for method in [Method::PUT, Method::DELETE] {
        let refused = send(&service, request(method, "/c/b", &[], "x")).await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (428, "precondition-required"));
    }
    let created = send(&service, request(Method::PUT, "/c/b", &[("if-none-match", "*")], "x")).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(send(&service, request(Method::GET, "/c/b", &[], "")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn options_and_other_methods_list_the_allowed_ones() {
    let fixture = fixture().await;
    for (path, allow) in [
        ("/c/b", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("/c", "GET, HEAD, OPTIONS"),
        ("/", "GET, HEAD, OPTIONS"),
        ("*", "GET, HEAD, OPTIONS"),
    ] {
        let options = fixture.send(request(Method::OPTIONS, path, &[], "")).await;
        assert_eq!((options.status, options.header("allow")), (StatusCode::NO_CONTENT, allow));
        for method in [Method::POST, Method::PATCH, Method::TRACE, Method::QUERY] {
            let refused = fixture.send(request(method, path, &[], "")).await;
            assert_eq!((refused.status, refused.header("allow")), (StatusCode::METHOD_NOT_ALLOWED, allow));
        }
    }
    assert_eq!(fixture.put("/c", "x").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(fixture.put("/c/", "x").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_body_over_the_configured_limit_is_refused() {
    let fixture = fixture().await;
    let service = BlobService::with_clock(Arc::new(fixture.store.clone()), fixture.clock.clone()).max_body(5000);
    assert_eq!(send(&service, request(Method::PUT, "/c/b", &[], bytes(5000, 1))).await.status, StatusCode::CREATED);
    let refused = send(&service, request(Method::PUT, "/c/b", &[], bytes(5001, 2))).await;
    assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (413, "content-too-large"));
    assert_eq!(fixture.get("/c/b").await.body, bytes(5000, 1));
}
