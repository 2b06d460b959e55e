//! Authentication of requests to the table service.

use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{JSON, refused};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("tables: access without a signature", |site| {
        with(site, None, 401, "NoAuthenticationInformation");
    });
    suite.case("tables: access with another scheme", |site| {
        with(site, Some("Bearer x"), 400, "InvalidAuthenticationInfo");
    });
    for scheme in ["SharedKey", "SharedKeyLite"] {
        suite.case(format!("tables: access with a wrong signature, {scheme}"), move |site| {
            let wrong = format!("{scheme} {}:{}", site.signer.account(), site.signer.signature("something else"));
            with(site, Some(&wrong), 403, "AuthenticationFailed");
        });
    }
    suite.case("tables: access with an old signature", |site| {
        let fields = [("x-ms-date", "Sun, 13 Sep 2020 12:26:40 GMT")];
        refused(site.tables().send("GET", "/Tables", &fields, ""), 403, "AuthenticationFailed");
    });
    suite.case("tables: access with SharedKeyLite", lite);
    suite.case("tables: the response repeats the version and the client request id", repeated);
}

fn with(site: &Site, authorization: Option<&str>, status: u16, code: &str) {
    let mut http = site.tables();
    let mut request = http.request("GET", "/Tables", &JSON, b"");
    request.headers_mut().remove("authorization");
    if let Some(value) = authorization {
        request.headers_mut().insert("authorization", value.parse().expect("a value"));
    }
    refused(http.exchange(&request), status, code);
}

/// JavaScript's client uses it for tables.
fn lite(site: &Site) {
    let mut http = site.tables();
    let mut request = http.request("GET", "/Tables?$top=5", &JSON, b"");
    let account = site.signer.account();
    let date = request.headers()["x-ms-date"].to_str().expect("text");
    let signature = site.signer.signature(&format!("{date}\n/{account}/{account}/Tables"));
    let value = format!("SharedKeyLite {account}:{signature}");
    request.headers_mut().insert("authorization", value.parse().expect("a value"));
    http.exchange(&request).is(200);
}

fn repeated(site: &Site) {
    let fields = [("x-ms-version", "2026-02-06"), ("x-ms-client-request-id", "8e03978e")];
    for path in ["/Tables", "/nowhere()"] {
        let reply = site.tables().send("GET", path, &fields, "");
        for (name, value) in fields {
            assert_eq!(reply.header(name), value, "{path}");
        }
        assert_eq!(reply.header("cache-control"), "no-cache", "{path}");
    }
}
