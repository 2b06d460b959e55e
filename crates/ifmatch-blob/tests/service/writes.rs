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
        assert_eq!(put.field("repr-digest"), ContentHash::of(&body).repr_digest().expect("SHA-256"));
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
async fn a_recreated_blob_never_gets_an_old_tag_again() {
    let fixture = fixture().await;
    let first = fixture.put("/c/b", "same").await.tag();
    fixture.send(request(Method::DELETE, "/c/b", &[], "")).await;
    fixture.put("/c/b", "same").await;
    let stale = fixture.send(request(Method::PUT, "/c/b", &[("if-match", &first)], "lost update")).await;
    assert_eq!(stale.status, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn the_fields_of_a_put_are_kept_with_that_blob_only() {
    let fixture = fixture().await;
    let fields = [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-encoding", "gzip"),
        ("content-language", "de"),
        ("content-disposition", "attachment; filename=\"a\""),
        ("cache-control", "max-age=60"),
        ("x-meta-owner", "me"),
        ("x-meta-empty", ""),
    ];
    fixture.send(request(Method::PUT, "/c/b", &fields, "x")).await;
    for method in [Method::GET, Method::HEAD] {
        let got = fixture.send(request(method, "/c/b", &[], "")).await;
        for (name, value) in fields {
            assert_eq!(got.field(name), value);
        }
        assert_eq!(got.field("x-content-type-options"), "nosniff");
    }
    fixture.put("/c/b", "y").await;
    let got = fixture.get("/c/b").await;
    assert_eq!(got.field("content-type"), "application/octet-stream");
    assert!(!got.headers.contains_key("x-meta-owner") && !got.headers.contains_key("cache-control"));
}

#[tokio::test]
async fn invalid_fields_are_refused_and_change_nothing() {
    let fixture = fixture().await;
    let long = "v".repeat(9_000);
    for (fields, status) in [
        (vec![("content-type", "a/b"), ("content-type", "c/d")], 400),
        (vec![("x-meta-a", "1"), ("x-meta-a", "2")], 400),
        (vec![("x-meta-", "1")], 400),
        (vec![("x-meta-a", "grün")], 400),
        (vec![("x-meta-a", long.as_str())], 431),
        (vec![("content-range", "bytes 0-0/5")], 400),
        (vec![("content-length", "1"), ("content-length", "1")], 400),
        (vec![("content-length", "+1")], 400),
        (vec![("content-length", "99999999999999999999")], 400),
        (vec![("repr-digest", "sha-256=nonsense")], 400),
        (vec![("idempotency-key", "")], 400),
        (vec![("idempotency-key", "a"), ("idempotency-key", "b")], 400),
    ] {
        let refused = fixture.send(request(Method::PUT, "/c/b", &fields, "x")).await;
        assert_eq!(refused.status.as_u16(), status, "{fields:?}");
        refused.problem();
    }
    assert_eq!(fixture.get("/c/b").await.status, StatusCode::NOT_FOUND);
    assert_eq!(fixture.get("/c").await.status, StatusCode::NOT_FOUND, "a rejected write creates no container");
}

#[tokio::test]
async fn the_date_is_sent_once_its_second_has_begun() {
    let fixture = fixture().await;
    assert!(!fixture.put("/c/b", "x").await.headers.contains_key("last-modified"));
    assert!(!fixture.get("/c/b").await.headers.contains_key("last-modified"));
    fixture.clock.advance(Duration::from_millis(500));
    let got = fixture.get("/c/b").await;
    assert_eq!(got.field("last-modified"), "Sun, 13 Sep 2020 12:26:41 GMT");
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
        assert_eq!((options.status, options.field("allow")), (StatusCode::NO_CONTENT, allow));
        for method in [Method::POST, Method::PATCH, Method::TRACE, Method::QUERY] {
            let refused = fixture.send(request(method, path, &[], "")).await;
            assert_eq!((refused.status, refused.field("allow")), (StatusCode::METHOD_NOT_ALLOWED, allow));
        }
    }
    assert_eq!(fixture.put("/c", "x").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(fixture.put("/c/", "x").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_write_with_parameters_is_refused() {
    let fixture = fixture().await;
    fixture.put("/c/b", "whole").await;
    assert_eq!(fixture.put("/c/b?comp=metadata", "").await.status, StatusCode::BAD_REQUEST);
    let delete = fixture.send(request(Method::DELETE, "/c/b?snapshot=1", &[], "")).await;
    assert_eq!(delete.status, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.get("/c/b?v=1").await.body, "whole");
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
