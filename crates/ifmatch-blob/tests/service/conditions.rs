//! Conditional requests for blobs: statuses and header fields.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::support::{Fixture, bytes, fixture, request};

async fn with_blob() -> (Fixture, String) {
    let fixture = fixture().await;
    let fields = [("content-type", "text/plain"), ("cache-control", "max-age=5"), ("x-meta-a", "1")];
    let tag = fixture.send(request(Method::PUT, "/c/b", &fields, bytes(10_000, 1))).await.tag();
    (fixture, tag)
}

#[tokio::test]
async fn a_304_has_the_fields_that_update_a_stored_response_and_no_others() {
    let (fixture, tag) = with_blob().await;
    fixture.clock.advance(Duration::from_secs(5));
    for method in [Method::GET, Method::HEAD] {
        for matching in [tag.clone(), format!("W/{tag}"), "*".into(), format!("\"a,b\", {tag}")] {
            let fields = [("if-none-match", matching.as_str()), ("range", "bytes=0-0")];
            let answer = fixture.send(request(method.clone(), "/c/b", &fields, "")).await;
            assert_eq!(answer.status, StatusCode::NOT_MODIFIED);
            assert_eq!(answer.tag(), tag);
            assert_eq!(answer.field("cache-control"), "max-age=5");
            for dropped in ["content-type", "content-length", "last-modified", "repr-digest", "accept-ranges"] {
                assert!(!answer.headers.contains_key(dropped), "{dropped} in {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn reads_are_decided_by_their_conditions() {
    let (fixture, tag) = with_blob().await;
    fixture.clock.advance(Duration::from_secs(100));
    let weak = format!("W/{tag}");
    let unquoted = tag.trim_matches('"').to_owned();
    let modified = fixture.get("/c/b").await.field("last-modified").to_owned();
    let early = "Sun, 01 Jan 1950 00:00:00 GMT";
    for (fields, status) in [
        (vec![("if-none-match", "\"other\"")], 200),
        (vec![("if-none-match", unquoted.as_str())], 200),
        (vec![("if-modified-since", modified.as_str())], 304),
        (vec![("if-modified-since", early)], 200),
        (vec![("if-modified-since", "yesterday")], 200),
        (vec![("if-none-match", "\"other\""), ("if-modified-since", &modified)], 200),
        (vec![("if-match", tag.as_str())], 200),
        (vec![("if-match", "\"other\""), ("if-match", &tag)], 200),
        (vec![("if-match", "*")], 200),
        (vec![("if-match", weak.as_str())], 412),
        (vec![("if-match", unquoted.as_str())], 412),
        (vec![("if-match", "\"other\""), ("if-none-match", &tag)], 412),
        (vec![("if-unmodified-since", modified.as_str())], 200),
        (vec![("if-unmodified-since", early)], 412),
        (vec![("if-match", tag.as_str()), ("if-unmodified-since", early)], 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let answer = fixture.send(request(method.clone(), "/c/b", &fields, "")).await;
            assert_eq!(answer.status.as_u16(), status, "{method} {fields:?}");
        }
    }
}

#[tokio::test]
async fn a_412_carries_the_current_tag_and_takes_precedence_over_416() {
    let (fixture, tag) = with_blob().await;
    let fields = [("if-match", "\"other\""), ("range", "bytes=99999-")];
    let answer = fixture.send(request(Method::GET, "/c/b", &fields, "")).await;
    assert_eq!((answer.status, answer.tag()), (StatusCode::PRECONDITION_FAILED, tag.clone()));
    assert_eq!(answer.problem(), "precondition-failed");
    assert_eq!(answer.json()["condition"], "if-match");
    assert_eq!(answer.json()["etag"], tag);
}

#[tokio::test]
async fn a_404_takes_precedence_over_the_conditions_of_reads_and_deletions() {
    let fixture = fixture().await;
    for method in [Method::GET, Method::HEAD, Method::DELETE] {
        for field in [("if-match", "\"x\""), ("if-none-match", "*")] {
            let answer = fixture.send(request(method.clone(), "/c/none", &[field], "")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {field:?}");
        }
    }
}

#[tokio::test]
async fn writes_are_decided_by_their_conditions() {
    for size in [10, 10_000] {
        let fixture = fixture().await;
        let body = || bytes(size, 1);
        let absent =
            [("if-match", "*"), ("if-match", "\"x\""), ("if-unmodified-since", "Sat, 01 Jan 2050 00:00:00 GMT")];
        for field in absent {
            let refused = fixture.send(request(Method::PUT, "/c/b", &[field], body())).await;
            assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{field:?}");
            assert!(!refused.headers.contains_key("etag"));
        }
        let tag = fixture.put("/c/b", body()).await.tag();
        let weak = format!("W/{tag}");
        let refused = [
            ("if-none-match", "*"),
            ("if-none-match", tag.as_str()),
            ("if-none-match", weak.as_str()),
            ("if-match", weak.as_str()),
            ("if-match", "\"other\""),
            ("if-match", "x"),
            ("if-unmodified-since", "Sat, 01 Jan 2000 00:00:00 GMT"),
        ];
        for field in refused {
            for method in [Method::PUT, Method::DELETE] {
                let answer = fixture.send(request(method.clone(), "/c/b", &[field], "lost")).await;
                assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED, "{method} {field:?}");
                assert_eq!(answer.tag(), tag);
            }
        }
        let replaced = fixture.send(request(Method::PUT, "/c/b", &[("if-match", &tag)], body())).await;
        assert_eq!(replaced.status, StatusCode::OK);
        let deleted = fixture.send(request(Method::DELETE, "/c/b", &[("if-match", &replaced.tag())], "")).await;
        assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    }
}
