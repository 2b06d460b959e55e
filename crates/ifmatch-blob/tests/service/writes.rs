//! PUT and DELETE: files, dates, policies, and requests repeated because their response was lost.

use std::time::Duration;

use http::{Method, StatusCode};
use ifmatch_core::policy::RequirePreconditions;

use crate::support::{bytes, fixture, hash_in, request, send};

#[tokio::test]
async fn a_version_takes_its_file_with_it() {
    let fixture = fixture().await;
    let first = fixture.put("/c/b", bytes(100_000, 1)).await.tag();
    let second = fixture.put("/c/b", bytes(100_000, 1)).await.tag();
    assert_eq!(
        (hash_in(&first) == hash_in(&second), first == second),
        (true, false),
        "the same bytes"
    );
    assert_eq!(fixture.get("/c/b").await.body, bytes(100_000, 1));
    fixture.put("/c/b", bytes(100_000, 2)).await;
    assert_eq!(
        (fixture.get("/c/b").await.body, fixture.files()),
        (bytes(100_000, 2), 1)
    );
    fixture.put("/c/b", "small").await;
    assert_eq!(fixture.files(), 0);
    fixture.put("/c/b", bytes(100_000, 1)).await;
    assert_eq!(
        fixture
            .send(request(Method::DELETE, "/c/b", &[], ""))
            .await
            .status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(fixture.files(), 0);
}

#[tokio::test]
async fn the_longest_name_can_be_stored() {
    let fixture = fixture().await;
    for (path, length) in
        [("%C3%BC", 970), ("%F0%9F%98%80", 485)].map(|(char, count)| (char.repeat(count), count))
    {
        let path = format!("/{}/{path}", "c".repeat(88));
        assert_eq!(
            fixture.put(&path, "x").await.status,
            StatusCode::CREATED,
            "{length} characters"
        );
        assert_eq!(fixture.get(&path).await.body, "x");
    }
}

#[tokio::test]
async fn the_date_is_sent_once_its_second_has_begun() {
    let fixture = fixture().await;
    assert!(
        !fixture
            .put("/c/b", "x")
            .await
            .headers
            .contains_key("last-modified")
    );
    assert!(
        !fixture
            .get("/c/b")
            .await
            .headers
            .contains_key("last-modified")
    );
    fixture.clock.advance(Duration::from_millis(500));
    let got = fixture.get("/c/b").await;
    assert_eq!(got.header("last-modified"), "Sun, 13 Sep 2020 12:26:41 GMT");
    // A date is as good as a tag: the next version has another one.
    let holds = [("if-unmodified-since", "Sun, 13 Sep 2020 12:26:41 GMT")];
    assert_eq!(
        fixture
            .send(request(Method::PUT, "/c/b", &holds, "y"))
            .await
            .status,
        StatusCode::OK
    );
    let lost = fixture
        .send(request(Method::PUT, "/c/b", &holds, "z"))
        .await;
    assert_eq!(lost.status, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn a_policy_requires_a_condition_for_writes() {
    let fixture = fixture().await;
    let service = fixture
        .service
        .clone()
        .require_preconditions(RequirePreconditions::for_writes());
    for method in [Method::PUT, Method::DELETE] {
        let refused = send(&service, request(method, "/c/b", &[], "x")).await;
        assert_eq!(
            (refused.status.as_u16(), refused.problem().as_str()),
            (428, "precondition-required")
        );
    }
    let created = send(
        &service,
        request(Method::PUT, "/c/b", &[("if-none-match", "*")], "x"),
    )
    .await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(
        send(&service, request(Method::GET, "/c/b", &[], ""))
            .await
            .status,
        StatusCode::OK
    );
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
        assert_eq!(
            (options.status, options.header("allow")),
            (StatusCode::NO_CONTENT, allow)
        );
        for method in [Method::POST, Method::PATCH, Method::TRACE, Method::QUERY] {
            let refused = fixture.send(request(method, path, &[], "")).await;
            assert_eq!(
                (refused.status, refused.header("allow")),
                (StatusCode::METHOD_NOT_ALLOWED, allow)
            );
        }
    }
    assert_eq!(
        fixture.put("/c", "x").await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    assert_eq!(
        fixture.put("/c/", "x").await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test]
async fn a_retried_create_gets_its_first_answer_again() {
    for size in [10, 10_000] {
        let fixture = fixture().await;
        let fields = [("if-none-match", "*"), ("idempotency-key", "\"8e03978e\"")];
        let create = || request(Method::PUT, "/c/b", &fields, bytes(size, 1));
        let first = fixture.send(create()).await;
        let again = fixture.send(create()).await;
        assert_eq!(
            (first.status, again.status),
            (StatusCode::CREATED, StatusCode::CREATED)
        );
        assert_eq!(first.tag(), again.tag());
        assert_eq!(
            fixture.files(),
            usize::from(size > 4096),
            "the retry's body remains"
        );
    }
}

#[tokio::test]
async fn a_retry_does_not_undo_later_writes() {
    let fixture = fixture().await;
    let put = || request(Method::PUT, "/c/b", &[("idempotency-key", "k")], "mine");
    let mine = fixture.send(put()).await;
    fixture.put("/c/b", "theirs").await;
    let again = fixture.send(put()).await;
    assert_eq!((again.status, again.tag()), (mine.status, mine.tag()));
    assert_eq!(fixture.get("/c/b").await.body, "theirs");
}

#[tokio::test]
async fn the_same_key_with_another_request_is_a_different_request() {
    let fixture = fixture().await;
    let key = ("idempotency-key", "k");
    fixture
        .send(request(
            Method::PUT,
            "/c/b",
            &[key, ("if-none-match", "*")],
            "one",
        ))
        .await;
    for (fields, body) in [
        (vec![key, ("if-none-match", "*")], "two"),
        (
            vec![key, ("if-none-match", "*"), ("content-type", "a/b")],
            "one",
        ),
        (vec![key, ("if-none-match", "*"), ("x-meta-a", "1")], "one"),
        (
            vec![("idempotency-key", "other"), ("if-none-match", "*")],
            "one",
        ),
    ] {
        let answer = fixture
            .send(request(Method::PUT, "/c/b", &fields, body))
            .await;
        assert_eq!(
            answer.status,
            StatusCode::PRECONDITION_FAILED,
            "{fields:?} {body}"
        );
    }
    let elsewhere = fixture
        .send(request(
            Method::PUT,
            "/c/other",
            &[key, ("if-none-match", "*")],
            "one",
        ))
        .await;
    assert_eq!(elsewhere.status, StatusCode::CREATED);
    assert_eq!(fixture.get("/c/b").await.body, "one");
}

#[tokio::test]
async fn a_retried_deletion_succeeds_again() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "x").await.tag();
    let fields = [("if-match", tag.as_str()), ("idempotency-key", "k")];
    for _ in 0..2 {
        let answer = fixture
            .send(request(Method::DELETE, "/c/b", &fields, ""))
            .await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
    }
}

#[tokio::test]
async fn a_date_is_a_strong_validator_once_its_second_is_over() {
    let fixture = fixture().await;
    fixture.put("/c/b", bytes(1000, 1)).await;
    fixture.clock.advance(Duration::from_millis(500));
    let date = fixture.get("/c/b").await.header("last-modified").to_owned();
    let with_date = async || {
        let fields = [("range", "bytes=0-9"), ("if-range", &date)];
        fixture
            .send(request(Method::GET, "/c/b", &fields, ""))
            .await
            .status
    };
    assert_eq!(
        with_date().await,
        StatusCode::OK,
        "the date's second is not over"
    );
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(with_date().await, StatusCode::PARTIAL_CONTENT);
}
