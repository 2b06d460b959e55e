//! Authentication: signatures, their dates, and the parts of a request that they cover.

use std::time::{Duration, SystemTime};

use http::Request;
use support::azure::{DEVELOPMENT_KEY, Form, Signer};

use crate::azure::blob;
use crate::http::Http;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("azure access: without a signature", unsigned);
    for authorization in [
        "Basic dXNlcjpwYXNz",
        "SharedKey",
        "SharedKey name",
        "SharedKey {account}:no base64",
    ] {
        suite.case(format!("azure access: {authorization}"), move |site| {
            let value = authorization.replace("{account}", site.signer.account());
            sent(
                site,
                |request| set(request, "authorization", &value),
                400,
                "InvalidAuthenticationInfo",
            );
        });
    }
    for (name, value) in CHANGES {
        suite.case(
            format!("azure access: {name} changed after signing"),
            move |site| {
                sent(
                    site,
                    |request| set(request, name, value),
                    403,
                    "AuthenticationFailed",
                );
            },
        );
    }
    suite.case("azure access: method changed after signing", |site| {
        sent(
            site,
            |request| *request.method_mut() = http::Method::DELETE,
            403,
            "AuthenticationFailed",
        );
    });
    for suffix in ["x", "?timeout=1", "?comp=metadata"] {
        suite.case(
            format!("azure access: {suffix} appended after signing"),
            move |site| {
                let append = |request: &mut Request<bytes::Bytes>| {
                    *request.uri_mut() = format!("{}{suffix}", request.uri())
                        .parse()
                        .expect("a target");
                };
                sent(site, append, 403, "AuthenticationFailed");
            },
        );
    }
    for (name, status, code) in [
        ("authorization", 400, "InvalidAuthenticationInfo"),
        ("x-ms-date", 403, "AuthenticationFailed"),
    ] {
        suite.case(format!("azure access: {name} twice"), move |site| {
            let repeat = |request: &mut Request<bytes::Bytes>| {
                let value = request.headers()[name].clone();
                request.headers_mut().append(name, value);
            };
            sent(site, repeat, status, code);
        });
    }
    for (minutes, status) in [(-16, 403), (16, 403), (-14, 200), (14, 200)] {
        suite.case(
            format!("azure access: {minutes} minutes from now"),
            move |site| skewed(site, minutes, status),
        );
    }
    suite.case("azure access: another key", |site| another_key(site, None));
    suite.case("azure access: an unknown account", |site| {
        another_key(site, Some("nobody"));
    });
    suite.case("azure access: another account's path", another_path);
    suite.case("azure access: a shared access signature", shared_access);
    suite.case(
        "azure access: SharedKeyLite covers comp in any spelling",
        short_form,
    );
    suite.case(
        "azure access: a replayed request under If-Match is harmless",
        replayed,
    );
}

/// Headers that determine what a request does, and are therefore signed.
const CHANGES: [(&str, &str); 10] = [
    ("if-match", "*"),
    ("if-none-match", "\"y\""),
    ("content-type", "text/html"),
    ("x-ms-blob-type", "PageBlob"),
    ("x-ms-meta-a", "b"),
    ("x-ms-lease-id", "a0000000-0000-4000-8000-000000000001"),
    ("range", "bytes=0-1"),
    ("content-encoding", "gzip"),
    ("content-md5", "x"),
    ("if-modified-since", "Sun, 13 Sep 2020 12:26:40 GMT"),
];

fn set(request: &mut Request<bytes::Bytes>, name: &'static str, value: &str) {
    request
        .headers_mut()
        .insert(name, value.parse().expect("a value"));
}

/// Sends a write that is changed after signing, and checks that it is rejected without effect.
fn sent(site: &Site, change: impl FnOnce(&mut Request<bytes::Bytes>), status: u16, code: &str) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let fields = [
        ("x-ms-blob-type", "BlockBlob"),
        ("content-type", "text/plain"),
    ];
    let mut request = http.request("PUT", &path, &fields, b"other");
    change(&mut request);
    http.exchange(&request).refused(status, code);
    assert_eq!(http.get(&path).is(200).text(), "first");
}

fn unsigned(site: &Site) {
    sent(
        site,
        |request| drop(request.headers_mut().remove("authorization")),
        401,
        "NoAuthenticationInformation",
    );
    let mut http = site.azure();
    let mut request = http.request("GET", "?comp=list&prefix=none", &[], b"");
    request.headers_mut().remove("authorization");
    assert_eq!(
        http.exchange(&request).is(401).header("www-authenticate"),
        "SharedKey"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "signatures carry the time of day"
)]
fn skewed(site: &Site, minutes: i64, status: u16) {
    let (now, by) = (
        SystemTime::now(),
        Duration::from_secs(60 * minutes.unsigned_abs()),
    );
    let date = httpdate::fmt_http_date(if minutes < 0 { now - by } else { now + by });
    let mut http = site.azure();
    let reply = http
        .send("GET", "?comp=list&prefix=none", &[("x-ms-date", &date)], "")
        .is(status);
    assert_eq!(
        reply.code(),
        if status == 403 {
            "AuthenticationFailed"
        } else {
            ""
        }
    );
}

/// Signs with a key that isn't the account's, as this account or as the right one.
fn another_key(site: &Site, account: Option<&str>) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let own = site.signer.account();
    let account = account.unwrap_or(own);
    let signer = Signer::new(account, &DEVELOPMENT_KEY.replace("Eby8", "AAAA"));
    let mut request = http.request("GET", &path, &[], b"");
    *request.uri_mut() = request
        .uri()
        .path()
        .replacen(own, account, 1)
        .parse()
        .expect("a path");
    signer.sign(Form::Blob, &mut request);
    http.exchange(&request).refused(403, "AuthenticationFailed");
}

fn another_path(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    for target in [format!("/other{path}"), format!("{path}x"), path.clone()] {
        let mut request = http.request("GET", &path, &[], b"");
        *request.uri_mut() = target.parse().expect("a path");
        http.exchange(&request).refused(403, "AuthenticationFailed");
    }
}

fn shared_access(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let mut request = http.request(
        "GET",
        &format!("{path}?sv=2026-02-06&sp=r&sig=abc"),
        &[],
        b"",
    );
    request.headers_mut().remove("authorization");
    http.exchange(&request).refused(403, "AuthenticationFailed");
}

fn short_form(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let account = site.signer.account().to_owned();
    let with = |http: &Http<'_>, target: &str| {
        let mut request = http.request("GET", target, &[], b"");
        let field = |name: &str| request.headers()[name].to_str().expect("text").to_owned();
        let (date, version) = (field("x-ms-date"), field("x-ms-version"));
        let text = format!(
            "GET\n\n\n\nx-ms-date:{date}\nx-ms-version:{version}\n/{account}/{account}{path}"
        );
        let value = format!("SharedKeyLite {account}:{}", site.signer.signature(&text));
        set(&mut request, "authorization", &value);
        request
    };
    let request = with(&http, &path);
    assert_eq!(http.exchange(&request).is(200).text(), "first");
    for query in [
        "comp=metadata",
        "Comp=metadata",
        "%63omp=metadata",
        "COMP=blocklist",
        "timeout=1&cOmp=blocklist",
    ] {
        let request = with(&http, &format!("{path}?{query}"));
        http.exchange(&request).refused(403, "AuthenticationFailed");
    }
}

/// Like Azure, the service accepts a copy for a while. A condition makes the copy harmless.
fn replayed(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let tag = http.get(&path).is(200).etag().to_owned();
    let fields = [("x-ms-blob-type", "BlockBlob"), ("if-match", tag.as_str())];
    let request = http.request("PUT", &path, &fields, b"second");
    http.exchange(&request).is(201);
    http.exchange(&request).refused(412, "ConditionNotMet");
}
