//! Leases in the plain dialect: the resource `?lease` of a blob, fenced writes, and reads and writes with the lease id by the
//! name of Azure's dialect.

use std::time::Duration;

use http::Method;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, LeaseRequest};
use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseId};
use ifmatch_core::precondition::Preconditions;

use crate::support::{Answer, Fixture, fixture, request};

/// The id of a lease, or of none.
const ID: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";

async fn lease(fixture: &Fixture, method: Method, headers: &[(&str, &str)]) -> Answer {
    fixture
        .send(request(method, "/c/b?lease", headers, ""))
        .await
}

async fn acquire(fixture: &Fixture, seconds: &str) -> Answer {
    let answer = lease(
        fixture,
        Method::POST,
        &[("lease-duration", seconds), ("lease-holder", "host-7")],
    )
    .await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer
}

async fn put(fixture: &Fixture, headers: &[(&str, &str)]) -> Answer {
    fixture
        .send(request(Method::PUT, "/c/b", headers, "text"))
        .await
}

#[tokio::test]
async fn a_lease_is_acquired_used_renewed_and_released() {
    let fixture = fixture().await;
    assert_eq!(
        lease(&fixture, Method::POST, &[("lease-duration", "15")])
            .await
            .status,
        404
    );
    fixture.put("/c/b", "one").await;
    let acquired = acquire(&fixture, "15").await;
    let (id, token) = (acquired.header("lease-id"), acquired.header("lease-token"));
    assert_eq!(acquired.header("lease-remaining"), "15");
    let again = lease(&fixture, Method::POST, &[("lease-duration", "15")]).await;
    assert_eq!(
        (again.status.as_u16(), again.header("x-ms-error-code")),
        (409, "LeaseAlreadyPresent")
    );
    assert_eq!(put(&fixture, &[]).await.status, 412);
    assert_eq!(
        put(&fixture, &[("lease-id", id), ("lease-token", token)])
            .await
            .status,
        200
    );
    fixture.clock.advance(Duration::from_secs(10));
    let renewed = lease(&fixture, Method::PUT, &[("lease-id", id)]).await;
    assert_eq!(
        (renewed.status.as_u16(), renewed.header("lease-token")),
        (200, token)
    );
    fixture.clock.advance(Duration::from_secs(10));
    let state = lease(&fixture, Method::GET, &[]).await.json();
    assert_eq!(
        (&state["state"], &state["remaining"], &state["holder"]),
        (&"leased".into(), &5.into(), &"host-7".into())
    );
    assert_eq!(state["token"].to_string(), token);
    assert!(!state.to_string().contains(id), "{state}");
    assert_eq!(
        lease(&fixture, Method::DELETE, &[("lease-id", id)])
            .await
            .status,
        204
    );
    assert_eq!(
        lease(&fixture, Method::GET, &[]).await.json()["state"],
        "available"
    );
    assert_eq!(put(&fixture, &[]).await.status, 200);
}

#[tokio::test]
async fn a_lease_is_broken_without_its_id_but_not_by_accident() {
    let fixture = fixture().await;
    fixture.put("/c/b", "one").await;
    acquire(&fixture, "-1").await;
    let refused = lease(&fixture, Method::DELETE, &[]).await;
    assert_eq!(refused.status, 400);
    assert!(
        String::from_utf8_lossy(&refused.body).contains("lease-break-period"),
        "{refused:?}"
    );
    let broken = lease(&fixture, Method::DELETE, &[("lease-break-period", "5")]).await;
    assert_eq!(
        (broken.status.as_u16(), broken.header("lease-remaining")),
        (202, "5")
    );
    assert_eq!(
        lease(&fixture, Method::GET, &[]).await.json()["state"],
        "breaking"
    );
    fixture.clock.advance(Duration::from_secs(5));
    assert_eq!(put(&fixture, &[]).await.status, 200);
}

#[tokio::test]
async fn invalid_requests_say_what_is_wrong_and_change_nothing() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "one").await.tag();
    let long = "x".repeat(65);
    for (method, headers, says) in [
        (Method::POST, &[][..], "lease-duration"),
        (Method::POST, &[("lease-duration", "14")], "15 to 60"),
        (
            Method::POST,
            &[("lease-duration", "30"), ("lease-holder", &long)],
            "lease-holder",
        ),
        (
            Method::POST,
            &[("lease-duration", "30"), ("lease-id", "mine")],
            "lease-id",
        ),
        (Method::PUT, &[], "lease-id"),
        (Method::DELETE, &[("lease-break-period", "61")], "0 to 60"),
        (
            Method::DELETE,
            &[("lease-id", ID), ("lease-break-period", "0")],
            "lease-id",
        ),
    ] {
        let answer = lease(&fixture, method.clone(), headers).await;
        assert_eq!(answer.status, 400, "{method} {headers:?}: {answer:?}");
        assert!(
            String::from_utf8_lossy(&answer.body).contains(says),
            "{method} {headers:?}: {answer:?}"
        );
    }
    for headers in [
        [("lease-token", "-1")],
        [("lease-token", "1.0")],
        [("lease-token", "")],
    ] {
        assert_eq!(put(&fixture, &headers).await.status, 400, "{headers:?}");
    }
    let both = [("lease-id", ID), ("x-ms-lease-id", ID)];
    assert_eq!(
        put(&fixture, &both).await.status,
        400,
        "two names of one field"
    );
    let other = fixture.send(request(Method::POST, "/c/b", &[], "")).await;
    assert_eq!(
        (other.status.as_u16(), other.header("allow")),
        (405, "GET, HEAD, PUT, DELETE, OPTIONS")
    );
    let other = fixture
        .send(request(Method::PATCH, "/c/b?lease", &[], ""))
        .await;
    assert_eq!(
        (other.status.as_u16(), other.header("allow")),
        (405, "GET, HEAD, POST, PUT, DELETE, OPTIONS")
    );
    assert_eq!(fixture.get("/c/b").await.tag(), tag);
    assert_eq!(
        lease(&fixture, Method::GET, &[]).await.json()["state"],
        "available"
    );
}

/// The client got no response and sends the request again.
#[tokio::test]
async fn a_repeated_request_gets_its_answer_again() {
    let fixture = fixture().await;
    fixture.put("/c/b", "one").await;
    let key = |key| ("idempotency-key", key);
    let first = lease(
        &fixture,
        Method::POST,
        &[("lease-duration", "15"), key("1")],
    )
    .await;
    let again = lease(
        &fixture,
        Method::POST,
        &[("lease-duration", "15"), key("1")],
    )
    .await;
    assert_eq!(
        (first.status, first.header("lease-id")),
        (again.status, again.header("lease-id"))
    );
    let id = [("lease-id", first.header("lease-id")), key("2")];
    assert_eq!(lease(&fixture, Method::DELETE, &id).await.status, 204);
    let successor = acquire(&fixture, "15").await;
    assert_eq!(
        lease(&fixture, Method::DELETE, &id).await.status,
        204,
        "released before"
    );
    let held = [("lease-id", successor.header("lease-id"))];
    assert_eq!(
        lease(&fixture, Method::PUT, &held).await.status,
        200,
        "the successor still holds the lease"
    );
}

/// A holder of a lock on another blob pauses, its successor writes, and the holder wakes up.
#[tokio::test]
async fn a_late_write_with_a_smaller_token_is_refused() {
    let fixture = fixture().await;
    fixture.put("/locks/l", "").await;
    let acquire = || {
        fixture.send(request(
            Method::POST,
            "/locks/l?lease",
            &[("lease-duration", "15")],
            "",
        ))
    };
    let paused = acquire().await;
    fixture.clock.advance(Duration::from_secs(15));
    let successor = acquire().await;
    let fence = |answer: &Answer| answer.header("lease-token").to_owned();
    assert_eq!(
        put(&fixture, &[("lease-token", &fence(&paused))])
            .await
            .status,
        201
    );
    assert_eq!(
        put(&fixture, &[("lease-token", &fence(&successor))])
            .await
            .status,
        200
    );
    for method in [Method::PUT, Method::DELETE] {
        let late = fixture
            .send(request(
                method,
                "/c/b",
                &[("lease-token", &fence(&paused))],
                "late",
            ))
            .await;
        assert_eq!(
            (late.status.as_u16(), late.header("x-ms-error-code")),
            (412, "LeaseTokenSuperseded")
        );
    }
    assert_eq!(fixture.get("/c/b").await.body, "text");
}

const OTHER: &str = "11111111-9abd-4d9d-80c7-02af85c822a8";

/// A blob leased as `ID` for 15 seconds, and its tag.
async fn leased() -> (Fixture, String) {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "one").await.tag();
    let id: LeaseId = ID.parse().expect("a GUID");
    let duration = LeaseDuration::from_seconds(15).expect("in range");
    let action = LeaseAction::Acquire {
        id,
        duration,
        holder: None,
    };
    let lease = LeaseRequest {
        action,
        preconditions: Preconditions::default(),
        request: None,
    };
    fixture
        .store
        .lease(&BlobPath::parse("/c/b").expect("a path"), lease)
        .await
        .expect("acquired");
    (fixture, tag)
}

#[tokio::test]
async fn the_lease_id_of_a_read_must_match() {
    let (fixture, tag) = leased().await;
    let get = |headers: &[(&str, &str)]| fixture.send(request(Method::GET, "/c/b", headers, ""));
    let not_modified = ("if-none-match", tag.as_str());
    assert_eq!(get(&[("x-ms-lease-id", ID)]).await.status, 200);
    assert_eq!(
        get(&[("x-ms-lease-id", ID), not_modified]).await.status,
        304
    );
    for headers in [
        &[("x-ms-lease-id", OTHER)][..],
        &[("x-ms-lease-id", OTHER), not_modified],
    ] {
        let refused = get(headers).await;
        assert_eq!(refused.status, 412, "{headers:?}");
        assert!(
            String::from_utf8_lossy(&refused.body).contains("LeaseIdMismatchWithBlobOperation"),
            "{refused:?}"
        );
    }
    fixture.clock.advance(Duration::from_secs(15));
    assert_eq!(
        get(&[("x-ms-lease-id", ID)]).await.status,
        412,
        "the lease has ended"
    );
    assert_eq!(get(&[not_modified]).await.status, 304);
    fixture.put("/c/b", "two").await;
    let gone = get(&[("x-ms-lease-id", ID)]).await;
    assert!(
        String::from_utf8_lossy(&gone.body).contains("LeaseNotPresentWithBlobOperation"),
        "{gone:?}"
    );
}

/// A late write of the holder must not count as one without a lease.
#[tokio::test]
async fn a_write_with_an_ended_lease_is_refused() {
    let (fixture, tag) = leased().await;
    fixture.clock.advance(Duration::from_secs(15));
    let late = fixture
        .send(request(
            Method::PUT,
            "/c/b",
            &[("x-ms-lease-id", ID)],
            "late",
        ))
        .await;
    assert_eq!(late.status, 412);
    assert!(
        String::from_utf8_lossy(&late.body).contains("LeaseLost"),
        "{late:?}"
    );
    assert_eq!(fixture.get("/c/b").await.tag(), tag);
    assert_eq!(fixture.put("/c/b", "two").await.status, 200);
}
