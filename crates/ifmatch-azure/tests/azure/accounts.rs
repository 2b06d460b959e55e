//! Who is let in, and to what.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use ifmatch_azure::AzureDialect;
use ifmatch_azure::accounts::Accounts;
use ifmatch_blob::BlobService;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;
use tower::ServiceExt;

use crate::support::{Client, ManualClock, OTHER_KEY, accounts, fixture, send, signature};

#[tokio::test]
async fn only_signed_requests_are_carried_out() {
    let client = fixture().await.client;
    let unsigned = |target: &str, authorization: Option<&str>| {
        let mut request = Request::get(target).header("x-ms-version", "2026-02-06");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request.body(Full::<Bytes>::default()).expect("a request")
    };
    let service = &client.service;
    let answer = send(service, unsigned("/photos?comp=list", None)).await;
    answer.refused(401, "NoAuthenticationInformation");
    assert_eq!(answer.field("www-authenticate"), "SharedKey");
    for authorization in ["Bearer token", "SharedKey", "SharedKey photos", "SharedKey photos:no base64"] {
        let answer = send(service, unsigned("/photos?comp=list", Some(authorization))).await;
        answer.refused(400, "InvalidAuthenticationInfo");
    }
    let answer = send(service, unsigned("/photos/box/a?sv=2026-02-06&sig=abc", None)).await;
    answer.refused(403, "AuthenticationFailed");
}

#[tokio::test]
async fn each_key_of_the_account_signs_and_no_other() {
    let client = fixture().await.client;
    let with = |account, key| Client { account, key, ..client.clone() };
    with("photos", b"photos' second key").get("?comp=list").await.is(200);
    with("photos", OTHER_KEY).get("?comp=list").await.refused(403, "AuthenticationFailed");
    with("nobody", OTHER_KEY).get("?comp=list").await.refused(403, "AuthenticationFailed");
    with("photos", b"").get("?comp=list").await.refused(403, "AuthenticationFailed");
}

/// A signature of one account on another's address, which both the path and the header name.
#[tokio::test]
async fn an_account_has_its_own_address_only() {
    let client = fixture().await.client;
    let reports = Client { account: "reports", key: OTHER_KEY, ..client.clone() };
    for path in ["/photos/box/a", "/reportsx/box/a", "/photos/../reports/box/a"] {
        let mut request = reports.signed(Method::GET, "/box/a", &[], Bytes::new(), Duration::ZERO);
        *request.uri_mut() = path.parse().expect("a path");
        send(&client.service, request).await.refused(403, "AuthenticationFailed");
    }
}

/// Whatever decides what a request does is signed: with another value the signature is wrong.
#[tokio::test]
async fn nothing_that_decides_can_be_changed_after_signing() {
    let client = fixture().await.client;
    client.upload("/box/a", "first", &[]).await.is(201);
    let fields = [("x-ms-blob-type", "BlockBlob"), ("if-match", "\"x\""), ("content-type", "text/plain")];
    let signed = || client.signed(Method::PUT, "/box/a?timeout=1", &fields, "other".into(), Duration::ZERO);
    let changed = [
        ("if-match", "*"),
        ("if-none-match", "\"y\""),
        ("content-type", "text/html"),
        ("content-length", "4"),
        ("x-ms-blob-type", "PageBlob"),
        ("x-ms-meta-a", "b"),
        ("x-ms-lease-id", "a0000000-0000-4000-8000-000000000001"),
        ("range", "bytes=0-1"),
        ("content-md5", "x"),
        ("content-encoding", "gzip"),
        ("if-modified-since", "Sun, 13 Sep 2020 12:26:40 GMT"),
    ];
    for (name, value) in changed {
        let mut request = signed();
        request.headers_mut().insert(name, value.parse().expect("a value"));
        send(&client.service, request).await.refused(403, "AuthenticationFailed");
    }
    let mut request = signed();
    *request.method_mut() = Method::DELETE;
    send(&client.service, request).await.refused(403, "AuthenticationFailed");
    for target in
        ["/photos/box/b?timeout=1", "/photos/box/a?timeout=2", "/photos/box/a", "/photos/box/a?timeout=1&comp=lease"]
    {
        let mut request = signed();
        *request.uri_mut() = target.parse().expect("a target");
        send(&client.service, request).await.refused(403, "AuthenticationFailed");
    }
    send(&client.service, signed()).await.refused(412, "ConditionNotMet");
}

/// The short form covers one parameter, however its name is written.
#[tokio::test]
async fn the_short_form_covers_what_is_done_to_a_resource() {
    let client = fixture().await.client;
    client.upload("/box/a", "first", &[]).await.is(201);
    let get = |target: &str| {
        let mut request = client.signed(Method::GET, "/box/a", &[], Bytes::new(), Duration::ZERO);
        let date = request.headers()["x-ms-date"].to_str().expect("a date").to_owned();
        let text = format!("GET\n\n\n\nx-ms-date:{date}\nx-ms-version:2026-02-06\n/photos/photos/box/a");
        let value = format!("SharedKeyLite photos:{}", signature(client.key, &text));
        request.headers_mut().insert("authorization", value.parse().expect("a value"));
        *request.uri_mut() = target.parse().expect("a target");
        request
    };
    assert_eq!(send(&client.service, get("/photos/box/a")).await.is(200).text(), "first");
    for target in ["comp=metadata", "Comp=metadata", "%63omp=metadata", "COMP=blocklist", "timeout=1&cOmp=blocklist"] {
        let answer = send(&client.service, get(&format!("/photos/box/a?{target}"))).await;
        answer.refused(403, "AuthenticationFailed");
    }
}

#[tokio::test]
async fn a_signature_holds_for_a_quarter_of_an_hour() {
    let fixture = fixture().await;
    let client = &fixture.client;
    let later =
        |minutes: u64| client.signed(Method::GET, "?comp=list", &[], Bytes::new(), Duration::from_mins(minutes));
    send(&client.service, later(14)).await.is(200);
    send(&client.service, later(16)).await.refused(403, "AuthenticationFailed");
    let now = later(0);
    fixture.clock.advance(Duration::from_mins(14));
    send(&client.service, now.clone()).await.is(200);
    fixture.clock.advance(Duration::from_mins(2));
    send(&client.service, now).await.refused(403, "AuthenticationFailed");
}

/// The system time is an hour ahead for a while. Signed requests are accepted again once it is right, without a
/// restart.
#[tokio::test]
async fn a_passing_error_of_the_wall_clock_passes() {
    #[derive(Clone)]
    struct Ahead(ManualClock, Arc<AtomicU64>);
    impl Clock for Ahead {
        fn now(&self) -> Timestamp {
            self.0.now()
        }
        fn wall(&self) -> Timestamp {
            self.0.now().saturating_add(Duration::from_mins(self.1.load(Ordering::SeqCst)))
        }
        fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
            self.0.sleep(duration)
        }
    }
    let fixture = fixture().await;
    let minutes = Arc::new(AtomicU64::new(0));
    let clock = Ahead(fixture.clock.clone(), Arc::clone(&minutes));
    let service =
        BlobService::with_clock(Arc::new(fixture.store.clone()), clock).dialect(AzureDialect::new(accounts()));
    let request = || fixture.client.signed(Method::GET, "?comp=list", &[], Bytes::new(), Duration::ZERO);
    for (ahead, status) in [(0, 200), (60, 403), (0, 200)] {
        minutes.store(ahead, Ordering::SeqCst);
        let response = service.clone().oneshot(request()).await.expect("it does not fail");
        assert_eq!(response.status().as_u16(), status, "{ahead} minutes ahead");
    }
}

#[tokio::test]
async fn a_repeated_authorization_or_date_is_refused() {
    let client = fixture().await.client;
    for (name, code) in [("authorization", "InvalidAuthenticationInfo"), ("x-ms-date", "AuthenticationFailed")] {
        let mut request = client.signed(Method::GET, "?comp=list", &[], Bytes::new(), Duration::ZERO);
        let value = request.headers()[name].clone();
        request.headers_mut().append(name, value);
        let answer = send(&client.service, request).await;
        assert_eq!(answer.code(), code);
    }
}

#[tokio::test]
async fn without_accounts_nobody_is_let_in() {
    let client = fixture().await.client;
    let context = client.service.context();
    let service = BlobService::with_clock(Arc::clone(&context.store), context.clock.clone());
    let closed = Client { service: service.dialect(AzureDialect::new(Accounts::default())), ..client };
    closed.get("?comp=list").await.refused(403, "AuthenticationFailed");
}

#[tokio::test]
async fn accounts_have_containers_of_their_own() {
    let client = fixture().await.client;
    let reports = Client { account: "reports", key: OTHER_KEY, ..client.clone() };
    assert!(reports.get("?comp=list").await.is(200).all("Name").is_empty());
    reports.get("/box?restype=container").await.refused(404, "ContainerNotFound");
    reports.put("/box?restype=container", &[], "").await.is(201);
    reports.upload("/box/a", "theirs", &[]).await.is(201);
    client.upload("/box/a", "ours", &[]).await.is(201);
    assert_eq!(reports.get("/box/a").await.is(200).body, "theirs");
    assert_eq!(client.get("/box/a").await.is(200).body, "ours");
    assert_eq!(client.get("?comp=list").await.is(200).all("Name"), ["box"]);
    assert_eq!(reports.get("?comp=list").await.is(200).all("Name"), ["box"]);
    assert!(reports.get("/box?restype=container&comp=list").await.text().contains("ContainerName=\"box\""));
    // No name leads from one account to another's containers.
    client.get("/reports.box/a").await.refused(400, "InvalidResourceName");
    assert!(accounts().iter().map(ifmatch_azure::accounts::Account::name).eq(["photos", "reports"]));
}
