//! Long polls: `Prefer: wait`, and the interleavings of a change with the wait.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_blob::BlobService;
use ifmatch_blob::store::BlobStore;
use ifmatch_blob::test_util::{Act, Hooked, Step};
use ifmatch_blob::waits::Waits;

use crate::support::{Answer, Fixture, fixture, request, send};

const WAIT: (&str, &str) = ("prefer", "wait=30");

fn poll(
    service: &BlobService,
    path: &str,
    tag: &str,
) -> impl Future<Output = Answer> + Send + 'static {
    let (service, request) = (
        service.clone(),
        request(Method::GET, path, &[WAIT, ("if-none-match", tag)], ""),
    );
    async move { send(&service, request).await }
}

/// Sends a poll through a service of its own, with a change right before one of its reads.
async fn poll_with(
    fixture: &Fixture,
    path: &str,
    tag: &str,
    at: usize,
    change: (Method, &str),
) -> Answer {
    let (service, (method, body)) = (fixture.service.clone(), change);
    let body = body.to_owned();
    let act = move || {
        let (service, request) = (
            service.clone(),
            request(method.clone(), "/c/b", &[], body.clone()),
        );
        async move { assert!(send(&service, request).await.status.is_success()) }
    };
    let hook = Act::new(|step, _| step == Step::Open, at..at + 1, act);
    let inner: Arc<dyn BlobStore> = Arc::new(fixture.store.clone());
    let hooked = Hooked { inner, hook };
    let service = BlobService::with_clock(Arc::new(hooked), fixture.clock.clone());
    poll(
        &service.waits(Waits::new(1).interval(Duration::from_millis(1))),
        path,
        tag,
    )
    .await
}

#[tokio::test]
async fn a_write_ends_the_wait_wherever_it_falls() {
    for at in 0..4 {
        let fixture = fixture().await;
        let tag = fixture.put("/c/b", "one").await.tag();
        let answer = poll_with(&fixture, "/c/b", &tag, at, (Method::PUT, "two")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (200, &b"two"[..]),
            "before read {at}"
        );
        assert_eq!(
            answer.headers.contains_key("preference-applied"),
            at > 0,
            "before read {at}"
        );
    }
}

#[tokio::test]
async fn a_deletion_ends_the_wait() {
    for at in 0..4 {
        let fixture = fixture().await;
        let tag = fixture.put("/c/b", "one").await.tag();
        let answer = poll_with(&fixture, "/c/b", &tag, at, (Method::DELETE, "")).await;
        assert_eq!(answer.status, 404, "before read {at}");
    }
}

/// Starts a poll and waits until it waits.
async fn waiting(fixture: &Fixture, path: &str, tag: &str) -> tokio::task::JoinHandle<Answer> {
    let poll = tokio::spawn(poll(&fixture.service, path, tag));
    while fixture.service.context().waits.count() == 0 {
        assert!(!poll.is_finished(), "the poll does not wait");
        tokio::task::yield_now().await;
    }
    poll
}

#[tokio::test]
async fn an_unchanged_blob_is_304_after_the_time() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "one").await.tag();
    let poll = waiting(&fixture, "/c/b", &tag).await;
    fixture.clock.advance(Duration::from_secs(30));
    let answer = poll.await.expect("an answer");
    assert_eq!(
        (answer.status.as_u16(), answer.header("preference-applied")),
        (304, "wait=30")
    );
    assert_eq!(
        (answer.tag(), fixture.service.context().waits.count()),
        (tag, 0)
    );
}

#[tokio::test]
async fn a_shutdown_ends_waits_with_304() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "one").await.tag();
    let poll = waiting(&fixture, "/c/b", &tag).await;
    fixture.service.context().waits.end();
    assert_eq!(poll.await.expect("an answer").status, 304);
    let late = poll_now(&fixture, &tag).await;
    assert_eq!(
        (
            late.status.as_u16(),
            late.headers.contains_key("preference-applied")
        ),
        (304, false)
    );
}

async fn poll_now(fixture: &Fixture, tag: &str) -> Answer {
    poll(&fixture.service, "/c/b", tag).await
}

/// A client that disconnects leaves no wait behind, and one beyond the bound gets its 304 at once.
#[tokio::test]
async fn waits_are_bounded_and_end_with_their_client() {
    let mut fixture = fixture().await;
    fixture.service = fixture.service.clone().waits(Waits::new(1));
    let tag = fixture.put("/c/b", "one").await.tag();
    let first = waiting(&fixture, "/c/b", &tag).await;
    let second = poll_now(&fixture, &tag).await;
    assert_eq!(
        (
            second.status.as_u16(),
            second.headers.contains_key("preference-applied")
        ),
        (304, false)
    );
    first.abort();
    assert!(first.await.is_err());
    assert_eq!(fixture.service.context().waits.count(), 0);
    let third = waiting(&fixture, "/c/b", &tag).await;
    fixture.put("/c/b", "two").await;
    assert_eq!(third.await.expect("an answer").status, 200);
}

/// A waiter for a lock wakes up when the holder releases it, and not when the holder renews it.
#[tokio::test]
async fn a_release_ends_the_wait_for_a_lease() {
    let fixture = fixture().await;
    fixture.put("/c/b", "").await;
    let lease =
        |method, headers: &[(&str, &str)]| fixture.send(request(method, "/c/b?lease", headers, ""));
    let acquired = lease(Method::POST, &[("lease-duration", "60")]).await;
    let id = [("lease-id", acquired.header("lease-id"))];
    let tag = lease(Method::GET, &[]).await.tag();
    let poll = waiting(&fixture, "/c/b?lease", &tag).await;
    assert_eq!(lease(Method::PUT, &id).await.status, 200);
    assert_eq!(
        lease(Method::GET, &[]).await.tag(),
        tag,
        "a renewal does not change the tag"
    );
    assert!(!poll.is_finished());
    assert_eq!(lease(Method::DELETE, &id).await.status, 204);
    let answer = poll.await.expect("an answer");
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["state"]),
        (200, &"available".into())
    );
}

#[tokio::test]
async fn the_end_of_a_lease_ends_the_wait_for_it() {
    let fixture = fixture().await;
    fixture.put("/c/b", "").await;
    let lease =
        |method, headers: &[(&str, &str)]| fixture.send(request(method, "/c/b?lease", headers, ""));
    lease(Method::POST, &[("lease-duration", "15")]).await;
    let tag = lease(Method::GET, &[]).await.tag();
    let poll = waiting(&fixture, "/c/b?lease", &tag).await;
    fixture.clock.advance(Duration::from_secs(15));
    assert_eq!(poll.await.expect("an answer").json()["state"], "expired");
}
