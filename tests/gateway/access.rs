//! Access by tokens, over real sockets.

use std::fs;

use http::Method;
use support::raw::exchange;
use support::{Client, Gateway};

const METHODS: [Method; 5] = [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::POST];

/// The responses to each method with each kind of token.
#[tokio::test]
async fn every_method_with_every_kind_of_token() {
    let flags = ["--read-token", "r", "--write-token", "w"];
    let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&flags));
    let client = Client::new(gateway.address());
    for (token, expected) in [
        (None, [401, 401, 401, 401, 401]),
        (Some("Bearer no"), [401, 401, 401, 401, 401]),
        (Some("Basic dzp3"), [401, 401, 401, 401, 401]),
        (Some("Bearer r"), [200, 200, 403, 403, 403]),
        (Some("Bearer w"), [200, 200, 200, 204, 405]),
    ] {
        client.put("/c/a", &[("authorization", "Bearer w")], "one").await;
        let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
        for (method, expected) in METHODS.into_iter().zip(expected) {
            let answer = client.request(method.clone(), "/c/a", &headers, "two").await;
            assert_eq!(answer.status, expected, "{method} with {token:?}");
            let challenged = answer.headers.contains_key("www-authenticate");
            assert_eq!(challenged, matches!(expected, 401 | 403), "{method} with {token:?}");
            assert!(!answer.headers.contains_key("etag") || expected < 400, "{method} with {token:?}");
        }
    }
}

/// Access is checked before anything that reveals if a blob exists.
#[tokio::test]
async fn refusals_do_not_reveal_if_a_blob_exists() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--write-token", "w"]);
    let client = Client::new(gateway.address());
    client.put("/c/there", &[("authorization", "Bearer w")], "one").await.expect(201);
    for path in ["/c/there", "/c/missing", "/missing", "/", "/c/a%00b", "/c/../d"] {
        let answer = client.get(path, &[("if-match", "\"x\"")]).await.expect(401);
        let missing = client.get("/c/missing", &[]).await.expect(401);
        assert_eq!(answer.body, missing.body, "{path}");
    }
}

/// The requests of a page of `evil.example` after DNS rebinding.
#[test]
fn without_tokens_foreign_hosts_are_rejected() {
    let get = |host: &str, path: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let open = Gateway::start(["serve", "--store", "memory://"]);
    for path in ["/", "/-/health", "/-/metrics", "/devstoreaccount1?comp=list"] {
        let refused = exchange(open.address(), get("evil.example:10000", path)).expect(421);
        assert_eq!(refused.header("content-type"), "application/problem+json", "{path}");
    }
    let put = "PUT http://evil.example/c/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1";
    exchange(open.address(), put).expect(421);
    exchange(open.address(), get("localhost", "/c/a")).expect(404);
    for host in ["127.0.0.1:10000", "[::1]", "localhost", "blobs.localhost", "machine"] {
        exchange(open.address(), get(host, "/")).expect(200);
    }
    let closed = Gateway::start(["serve", "--store", "memory://", "--read-token", "r"]);
    exchange(closed.address(), get("blobs.example\r\nAuthorization: Bearer r", "/")).expect(200);
}

/// The page knows the key of the development account.
#[test]
fn foreign_hosts_cannot_use_a_published_key() {
    let get = |host: &str, more: &str| format!("GET /one HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    let (signed, token) = ("x-ms-version: 2025-11-05\r\n", "Authorization: Bearer r\r\n");
    let secret = "one:MDEyMzQ1Njc4OWFiY2RlZg==";
    let folder = tempfile::tempdir().unwrap();
    for (accounts, status) in [("devstoreaccount1", 421), (&format!("{secret},devstoreaccount1"), 421), (secret, 401)] {
        let flags = ["serve", "--data", folder.path().to_str().unwrap(), "--read-token", "r", "--accounts", accounts];
        let mut gateway = Gateway::start(flags.iter().chain(&["--listen-tables", "127.0.0.1:0"]));
        let tables = gateway.tables();
        exchange(tables, get("evil.example", "")).expect(status);
        exchange(tables, get("blobs.example", token).replace("/one", "/-/metrics")).expect(200);
        exchange(gateway.address(), get("evil.example", signed)).expect(status);
        exchange(gateway.address(), get("localhost", signed)).expect(401);
        exchange(gateway.address(), get("blobs.example", token)).expect(404);
    }
}

/// The page would purge the cache, and read the metrics.
#[test]
fn foreign_hosts_cannot_use_the_endpoints_of_an_open_proxy() {
    let ask = |host: &str, request: &str| format!("{request} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let proxy = ["proxy", "--upstream", "http://127.0.0.1:9"];
    let open = Gateway::start(proxy);
    for request in ["DELETE /-/cache?prefix=", "GET /-/cache", "GET /-/metrics"] {
        exchange(open.address(), ask("evil.example", request)).expect(421);
        exchange(open.address(), ask("localhost", request)).expect(200);
    }
    exchange(open.address(), ask("site.example", "GET /")).expect(502);
    let closed = Gateway::start(proxy.iter().chain(&["--read-token", "r"]));
    exchange(closed.address(), ask("site.example\r\nAuthorization: Bearer r", "GET /-/metrics")).expect(200);
}

#[tokio::test]
async fn health_is_public_and_metrics_are_not() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--read-token", "r"]);
    let client = Client::new(gateway.address());
    assert_eq!(client.get("/-/health", &[]).await.expect(200).json(), serde_json::json!({ "status": "ok" }));
    let head = client.head("/-/health", &[]).await.expect(200);
    assert_eq!((head.header("content-length"), head.body.len()), ("15", 0));
    client.get("/-/metrics", &[]).await.expect(401);
    client.get("/-/metrics", &[("authorization", "Bearer r")]).await.expect(200);
    client.put("/-/health", &[("authorization", "Bearer r")], "x").await.expect(405);
    for path in ["/-", "/-/", "/-/other", "/-/health/x", "/-/HEALTH"] {
        client.get(path, &[("authorization", "Bearer r")]).await.expect(404);
    }
}

#[tokio::test]
async fn tokens_are_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let (read, write) = (folder.path().join("read"), folder.path().join("write"));
    fs::write(&read, "# readers\n\n  r1  \nr2\n").unwrap();
    fs::write(&write, "w1").unwrap();
    let (read, write) = (read.to_str().unwrap(), write.to_str().unwrap());
    let flags = ["--read-token-file", read, "--write-token-file", write];
    let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&flags));
    let client = Client::new(gateway.address());
    for token in ["r1", "r2", "w1"] {
        client.get("/", &[("authorization", &format!("Bearer {token}"))]).await.expect(200);
    }
    for token in ["# readers", "readers", "r", "r1  ,r2"] {
        client.get("/", &[("authorization", &format!("Bearer {token}"))]).await.expect(401);
    }

    fs::write(folder.path().join("empty"), "# no tokens yet\n").unwrap();
    let empty = folder.path().join("empty");
    let end = support::run(["serve", "--store", "memory://", "--write-token-file", empty.to_str().unwrap()]);
    assert_eq!(end.status.code(), Some(2), "a file without tokens must not open the gateway: {end:#?}");
}

/// Pages of an allowed origin can read blobs and their tags without a token, and write with one.
#[tokio::test]
async fn web_pages_of_allowed_origins_read_and_write() {
    let origins = ["--cors-origin", "https://a.example", "--cors-origin", "http://localhost:5173"];
    let flags = origins.iter().chain(&["--public-read", "--write-token", "w"]);
    let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(flags));
    let client = Client::new(gateway.address());
    let [origin, foreign] = [("origin", "http://localhost:5173"), ("origin", "https://b.example")];
    let asks = [origin, ("access-control-request-method", "PUT"), ("access-control-request-headers", "authorization")];
    let preflight = client.request(Method::OPTIONS, "/c/a", &asks, "").await.expect(204);
    assert_eq!(preflight.header("access-control-allow-origin"), "http://localhost:5173");
    assert!(preflight.header("access-control-allow-methods").contains("PUT"));
    let denied = client.put("/c/a", &[origin], "one").await.expect(401);
    assert_eq!(denied.header("access-control-allow-origin"), "http://localhost:5173", "pages see errors as well");
    let written = client.put("/c/a", &[origin, ("authorization", "Bearer w")], "one").await.expect(201);
    assert!(written.header("access-control-expose-headers").contains("ETag"));
    let unchanged = client.get("/c/a", &[origin, ("if-none-match", written.etag())]).await.expect(304);
    assert_eq!(unchanged.header("vary"), "origin");
    let read = client.get("/c/a", &[foreign]).await.expect(200);
    assert!(!read.headers.contains_key("access-control-allow-origin"), "{read:?}");
    for path in ["/-/metrics", "/-/leases"] {
        let hidden = client.get(path, &[origin]).await.expect(401);
        assert!(!hidden.headers.contains_key("access-control-allow-origin"), "{path}");
    }
    let azure = [origin, ("x-ms-version", "2025-01-05")];
    let unsigned = client.get("/devstoreaccount1/c/a", &azure).await.expect(401);
    assert!(!unsigned.headers.contains_key("access-control-allow-origin"), "Azure has CORS rules of its own");
    let plain = client.request(Method::OPTIONS, "/c/a", &[], "").await.expect(204);
    assert_eq!(plain.header("allow"), "GET, HEAD, PUT, DELETE, OPTIONS");
}

#[test]
fn an_origin_with_a_path_is_refused() {
    let refused = support::run(["serve", "--store", "memory://", "--cors-origin", "https://a.example/"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("--cors-origin") && refused.stderr.contains("https://HOST"), "{}", refused.stderr);
}

/// A page of another site cannot embed what only this machine may read.
#[tokio::test]
async fn pages_of_other_sites_embed_public_blobs_only() {
    for (flags, path, expected) in [
        (&[][..], "/c/a", Some("same-site")),
        (&[], "/c/a?sv=1&sig=x", None),
        (&["--write-token", "w", "--public-read"], "/c/a", None),
        (&["--write-token", "w", "--cors-origin", "https://app.example"], "/c/a", None),
    ] {
        let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(flags));
        let answer = Client::new(gateway.address()).get(path, &[]).await;
        let policy = answer.headers.get("cross-origin-resource-policy").map(|policy| policy.to_str().unwrap());
        assert_eq!(policy, expected, "{flags:?} {path}");
    }
}
