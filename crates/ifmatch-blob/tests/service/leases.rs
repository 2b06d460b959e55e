//! Leased blobs in the plain dialect: reads and writes, with the lease id by the name of Azure's dialect.

use std::time::Duration;

use http::Method;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, LeaseRequest};
use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseId};
use ifmatch_core::precondition::Preconditions;

use crate::support::{Fixture, fixture, request};

const HOLDER: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";
const OTHER: &str = "11111111-9abd-4d9d-80c7-02af85c822a8";

/// A blob leased by `HOLDER` for 15 seconds, and its tag.
async fn leased() -> (Fixture, String) {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "one").await.tag();
    let id: LeaseId = HOLDER.parse().expect("a GUID");
    let duration = LeaseDuration::from_seconds(15).expect("in range");
    let action = LeaseAction::Acquire { id, duration, holder: None };
    let lease = LeaseRequest { action, preconditions: Preconditions::default(), request: None };
    fixture.store.lease(&BlobPath::parse("/c/b").expect("a path"), lease).await.expect("acquired");
    (fixture, tag)
}

#[tokio::test]
async fn the_lease_id_of_a_read_must_match() {
    let (fixture, tag) = leased().await;
    let get = |headers: &[(&str, &str)]| fixture.send(request(Method::GET, "/c/b", headers, ""));
    let not_modified = ("if-none-match", tag.as_str());
    assert_eq!(get(&[("x-ms-lease-id", HOLDER)]).await.status, 200);
    assert_eq!(get(&[("x-ms-lease-id", HOLDER), not_modified]).await.status, 304);
    for headers in [&[("x-ms-lease-id", OTHER)][..], &[("x-ms-lease-id", OTHER), not_modified]] {
        let refused = get(headers).await;
        assert_eq!(refused.status, 412, "{headers:?}");
        assert!(String::from_utf8_lossy(&refused.body).contains("LeaseIdMismatchWithBlobOperation"), "{refused:?}");
    }
    fixture.clock.advance(Duration::from_secs(15));
    assert_eq!(get(&[("x-ms-lease-id", HOLDER)]).await.status, 412, "the lease has ended");
    assert_eq!(get(&[not_modified]).await.status, 304);
    fixture.put("/c/b", "two").await;
    let gone = get(&[("x-ms-lease-id", HOLDER)]).await;
    assert!(String::from_utf8_lossy(&gone.body).contains("LeaseNotPresentWithBlobOperation"), "{gone:?}");
}

/// A late write of the holder must not count as one without a lease.
#[tokio::test]
async fn a_write_with_an_ended_lease_is_refused() {
    let (fixture, tag) = leased().await;
    fixture.clock.advance(Duration::from_secs(15));
    let late = fixture.send(request(Method::PUT, "/c/b", &[("x-ms-lease-id", HOLDER)], "late")).await;
    assert_eq!(late.status, 412);
    assert!(String::from_utf8_lossy(&late.body).contains("LeaseLost"), "{late:?}");
    assert_eq!(fixture.get("/c/b").await.tag(), tag);
    assert_eq!(fixture.put("/c/b", "two").await.status, 200);
}
