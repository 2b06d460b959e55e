//! Who may use which tables.

use std::time::Duration;

use serde_json::json;

use crate::support::{ACCOUNT, Client, ENTITY, fixture, signature, unsigned};

#[tokio::test]
async fn only_signed_requests_are_carried_out() {
    let fixture = fixture().await;
    fixture.client.send_as_is(unsigned("/photos/Tables")).await.refused(401, "NoAuthenticationInformation");
    let wrong = format!("SharedKeyLite {ACCOUNT}:{}", signature("something else"));
    for (authorization, status, code) in
        [(wrong.as_str(), 403, "AuthenticationFailed"), ("Bearer x", 400, "InvalidAuthenticationInfo")]
    {
        let mut request = unsigned("/photos/Tables");
        let headers = request.headers_mut();
        headers.insert("x-ms-date", "Sun, 13 Sep 2020 12:26:40 GMT".parse().expect("a value"));
        headers.insert("authorization", authorization.parse().expect("a value"));
        fixture.client.send_as_is(request).await.refused(status, code);
    }
}

#[tokio::test]
async fn an_old_signature_is_refused() {
    let fixture = fixture().await;
    let text = "Sun, 13 Sep 2020 12:26:40 GMT\n/photos/photos/Tables";
    let send = || {
        let mut request = unsigned("/photos/Tables");
        let headers = request.headers_mut();
        headers.insert("x-ms-date", "Sun, 13 Sep 2020 12:26:40 GMT".parse().expect("a value"));
        let signed = format!("SharedKeyLite photos:{}", signature(text));
        headers.insert("authorization", signed.parse().expect("a value"));
        fixture.client.send_as_is(request)
    };
    send().await.is(200);
    fixture.clock.advance(Duration::from_mins(16));
    send().await.refused(403, "AuthenticationFailed");
}

/// Python's tables client signs the method and the type as well.
#[tokio::test]
async fn the_longer_form_of_a_signature_is_known() {
    let fixture = fixture().await;
    let text = "GET\n\n\nSun, 13 Sep 2020 12:26:40 GMT\n/photos/photos/Tables";
    let mut request = unsigned("/photos/Tables?$top=5");
    let headers = request.headers_mut();
    headers.insert("x-ms-date", "Sun, 13 Sep 2020 12:26:40 GMT".parse().expect("a value"));
    headers.insert("authorization", format!("SharedKey photos:{}", signature(text)).parse().expect("a value"));
    fixture.client.send_as_is(request).await.is(200);
}

#[tokio::test]
async fn accounts_have_tables_of_their_own() {
    let fixture = fixture().await;
    fixture.client.insert(json!({ "a": 1 })).await.is(204);
    let reports = Client { account: "reports", ..fixture.client.clone() };
    assert_eq!(reports.get("/Tables").await.json()["value"], json!([]));
    reports.get(ENTITY).await.refused(404, "TableNotFound");
    reports.create("tab").await;
    reports.get(ENTITY).await.refused(404, "ResourceNotFound");
    reports.send("DELETE", "/Tables('tab')", &[], "").await.is(204);
    assert_eq!(fixture.client.properties().await, json!({ "a": 1 }));
}
