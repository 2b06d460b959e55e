//! Requests that are rejected, and what each signature permits.

use serde_json::{Value, json};

use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, JSON, Table};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("tables: rejected entity, limits", limits);
    suite.case("tables: a merge respects the limits", merge_limit);
}

fn insert_refused(site: &Site, body: &str, status: u16, code: &str) {
    let mut table = Table::new(site);
    table.send("POST", "", &[], body).refused(status, code);
    assert_eq!(
        table.send("GET", "()", &[], "").is(200).json()["value"],
        json!([])
    );
}

fn limits(site: &Site) {
    let with = |name: &str, value: &str| {
        json!({ "PartitionKey": "p", "RowKey": "r", name: value }).to_string()
    };
    let large = "x".repeat(32 * 1024);
    let many = |count: usize, value: Value| {
        let mut entity: Value = (0..count)
            .map(|number| (format!("p{number}"), value.clone()))
            .collect();
        entity["PartitionKey"] = "p".into();
        entity["RowKey"] = "r".into();
        entity.to_string()
    };
    let long_key = json!({ "PartitionKey": "p", "RowKey": "k".repeat(513) }).to_string();
    for (body, status, code) in [
        ("[".repeat(100_000), 400, "InvalidInput"),
        (long_key, 400, "KeyValueTooLarge"),
        (with(&"n".repeat(256), "x"), 400, "PropertyNameTooLong"),
        (
            with("a", &format!("{large}x")),
            400,
            "PropertyValueTooLarge",
        ),
        (many(253, json!(1)), 400, "TooManyProperties"),
        (many(16, large.into()), 400, "EntityTooLarge"),
        (
            with("a", &"x".repeat(4 * 1024 * 1024)),
            413,
            "RequestBodyTooLarge",
        ),
    ] {
        insert_refused(site, &body, status, code);
    }
}

fn merge_limit(site: &Site) {
    let mut table = Table::new(site);
    let half = |from: usize| {
        (from..from + 130)
            .map(|number| (format!("p{number}"), json!(1)))
            .collect::<Value>()
    };
    let tag = table.insert("p", "r", &half(0)).is(204).etag().to_owned();
    table
        .write("MERGE", None, &half(130))
        .refused(400, "TooManyProperties");
    assert_eq!(table.send("GET", ENTITY, &[], "").is(200).etag(), tag);
    table.write("MERGE", None, &half(50)).is(204);
}

pub(crate) fn add_access(suite: &mut Suite) {
    suite.case("tables: access without a signature", |site| {
        listing_refused(site, None, 401, "NoAuthenticationInformation");
    });
    suite.case("tables: access with another scheme", |site| {
        listing_refused(site, Some("Bearer x"), 400, "InvalidAuthenticationInfo");
    });
    for scheme in ["SharedKey", "SharedKeyLite"] {
        suite.case(
            format!("tables: access with a wrong signature, {scheme}"),
            move |site| {
                let wrong = format!(
                    "{scheme} {}:{}",
                    site.signer.account(),
                    site.signer.signature("something else")
                );
                listing_refused(site, Some(&wrong), 403, "AuthenticationFailed");
            },
        );
    }
    suite.case("tables: access with an old signature", |site| {
        let fields = [("x-ms-date", "Sun, 13 Sep 2020 12:26:40 GMT")];
        site.tables()
            .send("GET", "/Tables", &fields, "")
            .refused(403, "AuthenticationFailed");
    });
    suite.case("tables: access with SharedKeyLite", lite);
    suite.case(
        "tables: the response repeats the version and the client request id",
        repeated,
    );
}

/// Checks that the tables aren't listed for this authorization.
fn listing_refused(site: &Site, authorization: Option<&str>, status: u16, code: &str) {
    let mut http = site.tables();
    let mut request = http.request("GET", "/Tables", &JSON, b"");
    request.headers_mut().remove("authorization");
    if let Some(value) = authorization {
        request
            .headers_mut()
            .insert("authorization", value.parse().expect("a value"));
    }
    http.exchange(&request).refused(status, code);
}

/// JavaScript's client uses it for tables.
fn lite(site: &Site) {
    let mut http = site.tables();
    let mut request = http.request("GET", "/Tables?$top=5", &JSON, b"");
    let account = site.signer.account();
    let date = request.headers()["x-ms-date"].to_str().expect("text");
    let signature = site
        .signer
        .signature(&format!("{date}\n/{account}/{account}/Tables"));
    let value = format!("SharedKeyLite {account}:{signature}");
    request
        .headers_mut()
        .insert("authorization", value.parse().expect("a value"));
    http.exchange(&request).is(200);
}

fn repeated(site: &Site) {
    let fields = [
        ("x-ms-version", "2026-02-06"),
        ("x-ms-client-request-id", "8e03978e"),
    ];
    for path in ["/Tables", "/nowhere()"] {
        let reply = site.tables().send("GET", path, &fields, "");
        for (name, value) in fields {
            assert_eq!(reply.header(name), value, "{path}");
        }
        assert_eq!(reply.header("cache-control"), "no-cache", "{path}");
    }
}
