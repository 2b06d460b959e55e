//! Requests repeated because their response was lost.

use http::{Method, StatusCode};

use crate::support::{bytes, fixture, request};

#[tokio::test]
async fn a_retried_create_gets_its_first_answer_again() {
    for size in [10, 10_000] {
        let fixture = fixture().await;
        let fields = [("if-none-match", "*"), ("idempotency-key", "\"8e03978e\"")];
        let create = || request(Method::PUT, "/c/b", &fields, bytes(size, 1));
        let first = fixture.send(create()).await;
        let again = fixture.send(create()).await;
        assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::CREATED));
        assert_eq!(first.tag(), again.tag());
        assert_eq!(fixture.files(), usize::from(size > 4096), "the retry's body remains");
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
    fixture.send(request(Method::PUT, "/c/b", &[key, ("if-none-match", "*")], "one")).await;
    for (fields, body) in [
        (vec![key, ("if-none-match", "*")], "two"),
        (vec![key, ("if-none-match", "*"), ("content-type", "a/b")], "one"),
        (vec![key, ("if-none-match", "*"), ("x-meta-a", "1")], "one"),
        (vec![("idempotency-key", "other"), ("if-none-match", "*")], "one"),
    ] {
        let answer = fixture.send(request(Method::PUT, "/c/b", &fields, body)).await;
        assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED, "{fields:?} {body}");
    }
    let elsewhere = fixture.send(request(Method::PUT, "/c/other", &[key, ("if-none-match", "*")], "one")).await;
    assert_eq!(elsewhere.status, StatusCode::CREATED);
    assert_eq!(fixture.get("/c/b").await.body, "one");
}

#[tokio::test]
async fn a_retried_deletion_succeeds_again() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "x").await.tag();
    let fields = [("if-match", tag.as_str()), ("idempotency-key", "k")];
    for _ in 0..2 {
        let answer = fixture.send(request(Method::DELETE, "/c/b", &fields, "")).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
    }
}
