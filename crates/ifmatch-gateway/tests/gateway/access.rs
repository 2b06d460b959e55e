//! Access: tokens, accounts and their keys.

use std::fs;

use http::Method;
use support::azure::{Azure, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use support::raw::exchange;
use support::{Client, Gateway, run};
use tempfile::TempDir;

use crate::serve;

/// Access is checked before anything that reveals if a blob exists.
#[tokio::test]
async fn refusals_do_not_reveal_if_a_blob_exists() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--write-token", "w"]);
    let client = Client::new(gateway.address());
    client
        .put("/c/there", &[("authorization", "Bearer w")], "one")
        .await
        .expect(201);
    for path in [
        "/c/there",
        "/c/missing",
        "/missing",
        "/",
        "/c/a%00b",
        "/c/../d",
    ] {
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
    for path in [
        "/",
        "/-/health",
        "/-/metrics",
        "/devstoreaccount1?comp=list",
    ] {
        let refused = exchange(open.address(), get("evil.example:10000", path)).expect(421);
        assert_eq!(
            refused.header("content-type"),
            "application/problem+json",
            "{path}"
        );
    }
    let put =
        "PUT http://evil.example/c/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1";
    exchange(open.address(), put).expect(421);
    exchange(open.address(), get("localhost", "/c/a")).expect(404);
    for host in [
        "127.0.0.1:10000",
        "[::1]",
        "localhost",
        "blobs.localhost",
        "machine",
    ] {
        exchange(open.address(), get(host, "/")).expect(200);
    }
    let closed = Gateway::start(["serve", "--store", "memory://", "--read-token", "r"]);
    exchange(
        closed.address(),
        get("blobs.example\r\nAuthorization: Bearer r", "/"),
    )
    .expect(200);
}

/// The page knows the key of the development account.
#[test]
fn foreign_hosts_cannot_use_a_published_key() {
    let get = |host: &str, more: &str| format!("GET /one HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    let (signed, token) = (
        "x-ms-version: 2025-11-05\r\n",
        "Authorization: Bearer r\r\n",
    );
    let secret = "one:MDEyMzQ1Njc4OWFiY2RlZg==";
    let folder = tempfile::tempdir().unwrap();
    for (accounts, status) in [
        ("devstoreaccount1", 421),
        (&format!("{secret},devstoreaccount1"), 421),
        (secret, 401),
    ] {
        let flags = [
            "serve",
            "--data",
            folder.path().to_str().unwrap(),
            "--read-token",
            "r",
            "--accounts",
            accounts,
        ];
        let mut gateway = Gateway::start(flags.iter().chain(&["--listen-tables", "127.0.0.1:0"]));
        let tables = gateway.tables();
        exchange(tables, get("evil.example", "")).expect(status);
        exchange(
            tables,
            get("blobs.example", token).replace("/one", "/-/metrics"),
        )
        .expect(200);
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
    exchange(
        closed.address(),
        ask("site.example\r\nAuthorization: Bearer r", "GET /-/metrics"),
    )
    .expect(200);
}

#[tokio::test]
async fn health_is_public_and_metrics_are_not() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--read-token", "r"]);
    let client = Client::new(gateway.address());
    assert_eq!(
        client.get("/-/health", &[]).await.expect(200).json(),
        serde_json::json!({ "status": "ok" })
    );
    let head = client.head("/-/health", &[]).await.expect(200);
    assert_eq!((head.header("content-length"), head.body.len()), ("15", 0));
    client.get("/-/metrics", &[]).await.expect(401);
    client
        .get("/-/metrics", &[("authorization", "Bearer r")])
        .await
        .expect(200);
    client
        .put("/-/health", &[("authorization", "Bearer r")], "x")
        .await
        .expect(405);
    for path in ["/-", "/-/", "/-/other", "/-/health/x", "/-/HEALTH"] {
        client
            .get(path, &[("authorization", "Bearer r")])
            .await
            .expect(404);
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
        client
            .get("/", &[("authorization", &format!("Bearer {token}"))])
            .await
            .expect(200);
    }
    for token in ["# readers", "readers", "r", "r1  ,r2"] {
        client
            .get("/", &[("authorization", &format!("Bearer {token}"))])
            .await
            .expect(401);
    }

    fs::write(folder.path().join("empty"), "# no tokens yet\n").unwrap();
    let empty = folder.path().join("empty");
    let end = support::run([
        "serve",
        "--store",
        "memory://",
        "--write-token-file",
        empty.to_str().unwrap(),
    ]);
    assert_eq!(
        end.status.code(),
        Some(2),
        "a file without tokens must not open the gateway: {end:#?}"
    );
}

/// Pages of an allowed origin can read blobs and their tags without a token, and write with one.
#[tokio::test]
async fn web_pages_of_allowed_origins_read_and_write() {
    let origins = [
        "--cors-origin",
        "https://a.example",
        "--cors-origin",
        "http://localhost:5173",
    ];
    let flags = origins
        .iter()
        .chain(&["--public-read", "--write-token", "w"]);
    let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(flags));
    let client = Client::new(gateway.address());
    let [origin, foreign] = [
        ("origin", "http://localhost:5173"),
        ("origin", "https://b.example"),
    ];
    let asks = [
        origin,
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "authorization"),
    ];
    let preflight = client
        .request(Method::OPTIONS, "/c/a", &asks, "")
        .await
        .expect(204);
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        "http://localhost:5173"
    );
    assert!(
        preflight
            .header("access-control-allow-methods")
            .contains("PUT")
    );
    let denied = client.put("/c/a", &[origin], "one").await.expect(401);
    assert_eq!(
        denied.header("access-control-allow-origin"),
        "http://localhost:5173",
        "pages see errors as well"
    );
    let written = client
        .put("/c/a", &[origin, ("authorization", "Bearer w")], "one")
        .await
        .expect(201);
    assert!(
        written
            .header("access-control-expose-headers")
            .contains("ETag")
    );
    let unchanged = client
        .get("/c/a", &[origin, ("if-none-match", written.etag())])
        .await
        .expect(304);
    assert_eq!(unchanged.header("vary"), "origin");
    let read = client.get("/c/a", &[foreign]).await.expect(200);
    assert!(
        !read.headers.contains_key("access-control-allow-origin"),
        "{read:?}"
    );
    for path in ["/-/metrics", "/-/leases"] {
        let hidden = client.get(path, &[origin]).await.expect(401);
        assert!(
            !hidden.headers.contains_key("access-control-allow-origin"),
            "{path}"
        );
    }
    let azure = [origin, ("x-ms-version", "2025-01-05")];
    let unsigned = client
        .get("/devstoreaccount1/c/a", &azure)
        .await
        .expect(401);
    assert!(
        !unsigned.headers.contains_key("access-control-allow-origin"),
        "Azure has CORS rules of its own"
    );
    let plain = client
        .request(Method::OPTIONS, "/c/a", &[], "")
        .await
        .expect(204);
    assert_eq!(plain.header("allow"), "GET, HEAD, PUT, DELETE, OPTIONS");
}

#[test]
fn an_origin_with_a_path_is_refused() {
    let refused = support::run([
        "serve",
        "--store",
        "memory://",
        "--cors-origin",
        "https://a.example/",
    ]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.stderr.contains("--cors-origin") && refused.stderr.contains("https://HOST"),
        "{}",
        refused.stderr
    );
}

/// A page of another site can't embed what only this machine may read.
#[tokio::test]
async fn pages_of_other_sites_embed_public_blobs_only() {
    for (flags, path, expected) in [
        (&[][..], "/c/a", Some("same-site")),
        (&[], "/c/a?sv=1&sig=x", None),
        (&["--write-token", "w", "--public-read"], "/c/a", None),
        (
            &["--write-token", "w", "--cors-origin", "https://app.example"],
            "/c/a",
            None,
        ),
    ] {
        let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(flags));
        let answer = Client::new(gateway.address()).get(path, &[]).await;
        let policy = answer
            .headers
            .get("cross-origin-resource-policy")
            .map(|policy| policy.to_str().unwrap());
        assert_eq!(policy, expected, "{flags:?} {path}");
    }
}

const MEMORY: [&str; 3] = ["serve", "--store", "memory://"];
/// `0123456789abcdef` and `another`.
const KEYS: [&str; 2] = ["MDEyMzQ1Njc4OWFiY2RlZg==", "YW5vdGhlcg=="];

/// Starts a gateway on a temporary folder.
fn start(flags: &[&str]) -> ((Gateway, TempDir), Client) {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), flags);
    let client = Client::new(gateway.address());
    ((gateway, folder), client)
}

#[tokio::test]
async fn the_development_account_is_enabled_by_default() {
    let (_gateway, client) = start(&[]);
    let azure = Azure::development(client.clone());
    azure.create_container("docs").await.expect(201);
    azure.put("/docs/a", &[], "signed").await.expect(201);
    assert_eq!(
        client.get("/docs/a", &[]).await.expect(200).text(),
        "signed"
    );
    let wrong = Azure::new(client, DEVELOPMENT_ACCOUNT, KEYS[0]);
    let refused = wrong.put("/docs/a", &[], "forged").await.expect(403);
    assert_eq!(refused.header("x-ms-error-code"), "AuthenticationFailed");
    assert_eq!(
        azure
            .blob(Method::GET, "/docs/a", &[], "")
            .await
            .expect(200)
            .text(),
        "signed"
    );
}

/// Requests in Azure's dialect need a signature: `x-ms-version` alone grants no access.
#[tokio::test]
async fn a_version_header_without_a_signature_grants_no_access() {
    let (_gateway, client) = start(&["--write-token", "w"]);
    let write = ("authorization", "Bearer w");
    client.put("/docs/a", &[write], "kept").await.expect(201);
    let version = ("x-ms-version", "2025-11-05");
    for path in [
        "/",
        "/docs",
        "/docs/a",
        "/devstoreaccount1/docs/a",
        "/docs/a?comp=lease",
    ] {
        for method in [
            Method::GET,
            Method::HEAD,
            Method::PUT,
            Method::DELETE,
            Method::POST,
            Method::OPTIONS,
        ] {
            for headers in [&[version][..], &[version, write], &[version, version]] {
                let answer = client.request(method.clone(), path, headers, "").await;
                assert!(
                    matches!(answer.status.as_u16(), 400 | 401 | 403),
                    "{method} {path} {headers:?}: {answer:#?}"
                );
                assert!(!answer.headers.contains_key("etag"), "{method} {path}");
            }
        }
    }
    assert_eq!(
        client.get("/docs/a", &[write]).await.expect(200).text(),
        "kept"
    );
    client.get("/-/leases", &[version]).await.expect(401);
    client.get("/-/metrics", &[version]).await.expect(401);
    // A signature in the query is verified, and opens neither another dialect nor the endpoints of operators.
    for path in [
        "/docs/a?sig=x",
        "/docs/a?sv=2021-12-02&sr=b&sp=rwd&se=2100-01-01&sig=x",
        "/devstoreaccount1/docs/a?sig=x",
    ] {
        for method in [
            Method::GET,
            Method::HEAD,
            Method::PUT,
            Method::DELETE,
            Method::POST,
            Method::OPTIONS,
        ] {
            let answer = client
                .request(method.clone(), path, &[], "")
                .await
                .expect(403);
            assert!(!answer.headers.contains_key("etag"), "{method} {path}");
        }
    }
    assert_eq!(
        client.get("/docs/a", &[write]).await.expect(200).text(),
        "kept"
    );
    client.get("/-/leases?sig=x", &[]).await.expect(401);
    client.get("/-/metrics?sig=x", &[]).await.expect(401);
}

#[tokio::test]
async fn tokens_disable_the_development_account() {
    let (_gateway, client) = start(&["--write-token", "w"]);
    let azure = Azure::development(client);
    azure.create_container("docs").await.expect(403);
}

/// An account with a secret disables unsigned access to the same blobs, on loopback as well.
#[tokio::test]
async fn accounts_disable_unsigned_access() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ifmatch.toml");
    let text = format!(
        "[[accounts]]\nname = 'first'\nkey = '{}'\nkey2 = '{}'\n\n[[accounts]]\nname = 'second'\nkey = '{}'\n",
        KEYS[0], KEYS[1], KEYS[1]
    );
    fs::write(&file, text).unwrap();
    let mut gateway = serve(folder.path(), &["--config", file.to_str().unwrap()]);
    let client = Client::new(gateway.address());
    let first = Azure::new(client.clone(), "first", KEYS[0]);
    let second = Azure::new(client.clone(), "second", KEYS[1]);
    first.create_container("docs").await.expect(201);
    first.put("/docs/a", &[], "of the first").await.expect(201);
    second
        .blob(Method::GET, "/docs/a", &[], "")
        .await
        .expect(404);
    second.create_container("docs").await.expect(201);
    second
        .put("/docs/a", &[], "of the second")
        .await
        .expect(201);
    let by_second_key = Azure::new(client.clone(), "first", KEYS[1]);
    assert_eq!(
        by_second_key
            .blob(Method::GET, "/docs/a", &[], "")
            .await
            .expect(200)
            .text(),
        "of the first"
    );
    Azure::new(client.clone(), "second", KEYS[0])
        .blob(Method::GET, "/docs/a", &[], "")
        .await
        .expect(403);
    Azure::development(client.clone())
        .blob(Method::GET, "/docs/a", &[], "")
        .await
        .expect(403);
    for path in ["/", "/docs", "/docs/a", "/second.docs/a"] {
        client.get(path, &[]).await.expect(401);
        client
            .get(path, &[("authorization", &format!("Bearer {}", KEYS[0]))])
            .await
            .expect(401);
    }
    client.put("/docs/a", &[], "anybody").await.expect(401);
    let banner = gateway.stop().stdout;
    assert!(
        banner.contains("AccountName=first;AccountKey=KEY;") && !banner.contains(KEYS[0]),
        "{banner}"
    );

    let gateway = serve(
        folder.path(),
        &["--config", file.to_str().unwrap(), "--read-token", "r"],
    );
    let client = Client::new(gateway.address());
    let read = ("authorization", "Bearer r");
    assert_eq!(
        client.get("/docs/a", &[read]).await.expect(200).text(),
        "of the first"
    );
    assert_eq!(
        client
            .get("/second.docs/a", &[read])
            .await
            .expect(200)
            .text(),
        "of the second"
    );
    client.put("/docs/a", &[read], "x").await.expect(403);
}

#[tokio::test]
async fn accounts_allow_only_signed_requests_from_other_machines() {
    let account = format!("first:{}", KEYS[0]);
    let ((gateway, _folder), _) = start(&["--listen", "0.0.0.0:0", "--accounts", &account]);
    let client = Client::new(([127, 0, 0, 1], gateway.address().port()).into());
    Azure::new(client.clone(), "first", KEYS[0])
        .create_container("docs")
        .await
        .expect(201);
    client.get("/", &[]).await.expect(401);
    client.put("/docs/a", &[], "x").await.expect(401);
    client.get("/-/leases", &[]).await.expect(401);
}

/// Published and short keys are rejected on addresses that other machines can reach.
#[test]
fn public_and_short_credentials_are_allowed_on_loopback_only() {
    const LONG: &str = "0123456789abcdef";
    let known = format!("first:{DEVELOPMENT_KEY}");
    for (flags, expected) in [
        (&["--listen", "0.0.0.0:0"][..], "credentials"),
        (
            &["--listen", "0.0.0.0:0", "--accounts", DEVELOPMENT_ACCOUNT],
            "is public",
        ),
        (
            &["--listen", "0.0.0.0:0", "--accounts", &known],
            "is public",
        ),
        (
            &[
                "--listen",
                "0.0.0.0:0",
                "--write-token",
                LONG,
                "--accounts",
                DEVELOPMENT_ACCOUNT,
            ],
            "is public",
        ),
        (
            &[
                "--listen-tables",
                "0.0.0.0:0",
                "--accounts",
                DEVELOPMENT_ACCOUNT,
            ],
            "is public",
        ),
        (&["--listen-tables", "0.0.0.0:0"], "--accounts NAME:KEY"),
        (
            &["--listen-tables", "127.0.0.1:0", "--write-token", "w"],
            "--accounts NAME:KEY",
        ),
        (
            &["--listen", "0.0.0.0:0", "--write-token", "w"],
            "a token with fewer than 16 characters can be guessed",
        ),
        (
            &[
                "--listen",
                "0.0.0.0:0",
                "--write-token",
                LONG,
                "--read-token",
                "r",
            ],
            "a token with fewer than 16 characters can be guessed",
        ),
        (
            &["--listen-tables", "0.0.0.0:0", "--accounts", "first:AA=="],
            "fewer than 16 bytes and can be guessed",
        ),
        (&["--accounts", "first"], "no key"),
        (&["--accounts", "first:no-base64!"], "base64"),
        (
            &["--accounts", "first:c2VjcmV0,first:c2VjcmV0"],
            "same name",
        ),
    ] {
        let end = run(MEMORY.iter().chain(flags));
        assert_eq!(end.status.code(), Some(2), "{flags:?}: {end:#?}");
        assert!(
            end.stderr.contains(expected) && !end.stderr.contains("no-base64"),
            "{flags:?}: {end:#?}"
        );
    }
}

#[tokio::test]
async fn the_development_account_can_be_combined_with_tokens() {
    let (_gateway, client) = start(&["--write-token", "w", "--accounts", DEVELOPMENT_ACCOUNT]);
    Azure::development(client.clone())
        .create_container("docs")
        .await
        .expect(201);
    client.get("/", &[]).await.expect(401);
    client
        .get("/", &[("authorization", "Bearer w")])
        .await
        .expect(200);
}
