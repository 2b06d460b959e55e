//! Accounts: their keys, addresses and containers.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use ifmatch_azure::AzureDialect;
use ifmatch_blob::BlobService;
use ifmatch_blob::accounts::Accounts;
use tower::ServiceExt;

use crate::signer::{Form, Signer};
use crate::support::{Client, OTHER_KEY, accounts, fixture, send};

#[tokio::test]
async fn either_key_of_an_account_signs() {
    let client = fixture().await.client;
    let with = |account, key| Client {
        account,
        key,
        ..client.clone()
    };
    with("photos", b"photos' second key")
        .get("?comp=list")
        .await
        .expect(200);
    with("photos", OTHER_KEY)
        .get("?comp=list")
        .await
        .refused(403, "AuthenticationFailed");
    with("nobody", OTHER_KEY)
        .get("?comp=list")
        .await
        .refused(403, "AuthenticationFailed");
    with("photos", b"")
        .get("?comp=list")
        .await
        .refused(403, "AuthenticationFailed");
}

/// One account signs a request for another account's path.
#[tokio::test]
async fn a_key_is_valid_only_for_its_own_account() {
    let client = fixture().await.client;
    let reports = Client {
        account: "reports",
        key: OTHER_KEY,
        ..client.clone()
    };
    for path in [
        "/photos/box/a",
        "/reportsx/box/a",
        "/photos/../reports/box/a",
    ] {
        let mut request = reports.signed(Method::GET, "/box/a", &[], Bytes::new(), Duration::ZERO);
        *request.uri_mut() = path.parse().expect("a path");
        Signer::new("reports", &STANDARD.encode(OTHER_KEY)).sign(Form::Blob, &mut request);
        send(&client.service, request)
            .await
            .refused(403, "AuthenticationFailed");
    }
}

/// The wall clock is an hour ahead for a while.
#[tokio::test]
async fn signatures_are_accepted_again_once_the_wall_clock_is_right() {
    let fixture = fixture().await;
    let clock = fixture.clock.clone();
    let service = BlobService::with_clock(Arc::new(fixture.store.clone()), clock.clone())
        .dialect(AzureDialect::new(accounts()));
    let request = || {
        fixture
            .client
            .signed(Method::GET, "?comp=list", &[], Bytes::new(), Duration::ZERO)
    };
    for (ahead, status) in [(0, 200), (60, 403), (0, 200)] {
        clock.skew_wall(ahead * 60);
        let response = service
            .clone()
            .oneshot(request())
            .await
            .expect("infallible");
        assert_eq!(response.status().as_u16(), status, "{ahead} minutes ahead");
    }
}

#[tokio::test]
async fn without_accounts_every_request_is_rejected() {
    let client = fixture().await.client;
    let context = client.service.context();
    let service = BlobService::with_clock(Arc::clone(&context.store), context.clock.clone());
    let closed = Client {
        service: service.dialect(AzureDialect::new(Accounts::default())),
        ..client
    };
    closed
        .get("?comp=list")
        .await
        .refused(403, "AuthenticationFailed");
}

#[tokio::test]
async fn accounts_have_separate_containers() {
    let client = fixture().await.client;
    let reports = Client {
        account: "reports",
        key: OTHER_KEY,
        ..client.clone()
    };
    assert!(
        reports
            .get("?comp=list")
            .await
            .expect(200)
            .all("Name")
            .is_empty()
    );
    reports
        .get("/box?restype=container")
        .await
        .refused(404, "ContainerNotFound");
    reports
        .put("/box?restype=container", &[], "")
        .await
        .expect(201);
    reports.upload("/box/a", "theirs", &[]).await.expect(201);
    client.upload("/box/a", "ours", &[]).await.expect(201);
    assert_eq!(reports.get("/box/a").await.expect(200).body, "theirs");
    assert_eq!(client.get("/box/a").await.expect(200).body, "ours");
    assert_eq!(
        client.get("?comp=list").await.expect(200).all("Name"),
        ["box"]
    );
    assert_eq!(
        reports.get("?comp=list").await.expect(200).all("Name"),
        ["box"]
    );
    assert!(
        reports
            .get("/box?restype=container&comp=list")
            .await
            .text()
            .contains("ContainerName=\"box\"")
    );
    // The plain dialect's name for another account's container.
    client
        .get("/reports.box/a")
        .await
        .refused(400, "InvalidResourceName");
    assert!(
        accounts()
            .iter()
            .map(ifmatch_blob::accounts::Account::name)
            .eq(["photos", "reports"])
    );
}
