//! Accounts, and access without signatures.

use std::fs;

use http::Method;
use support::azure::{Azure, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use support::{Client, Gateway, run};
use tempfile::TempDir;

use crate::serve;

const MEMORY: [&str; 3] = ["serve", "--store", "memory://"];
/// `secret` and `another`.
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
    assert_eq!(client.get("/docs/a", &[]).await.expect(200).text(), "signed");
    let wrong = Azure::new(client, DEVELOPMENT_ACCOUNT, KEYS[0]);
    let refused = wrong.put("/docs/a", &[], "forged").await.expect(403);
    assert_eq!(refused.header("x-ms-error-code"), "AuthenticationFailed");
    assert_eq!(azure.blob(Method::GET, "/docs/a", &[], "").await.expect(200).text(), "signed");
}

/// Requests in Azure's dialect need a signature: `x-ms-version` alone grants no access.
#[tokio::test]
async fn a_version_header_without_a_signature_grants_no_access() {
    let (_gateway, client) = start(&["--write-token", "w"]);
    let write = ("authorization", "Bearer w");
    client.put("/docs/a", &[write], "kept").await.expect(201);
    let version = ("x-ms-version", "2025-11-05");
    for path in ["/", "/docs", "/docs/a", "/devstoreaccount1/docs/a", "/docs/a?comp=lease"] {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::POST, Method::OPTIONS] {
            for headers in [&[version][..], &[version, write], &[version, version]] {
                let answer = client.request(method.clone(), path, headers, "").await;
                assert!(matches!(answer.status.as_u16(), 400 | 401 | 403), "{method} {path} {headers:?}: {answer:#?}");
                assert!(!answer.headers.contains_key("etag"), "{method} {path}");
            }
        }
    }
    assert_eq!(client.get("/docs/a", &[write]).await.expect(200).text(), "kept");
    client.get("/-/leases", &[version]).await.expect(401);
    client.get("/-/metrics", &[version]).await.expect(401);
    // A signature in the query is verified, and opens neither another dialect nor the endpoints of operators.
    for path in
        ["/docs/a?sig=x", "/docs/a?sv=2021-12-02&sr=b&sp=rwd&se=2100-01-01&sig=x", "/devstoreaccount1/docs/a?sig=x"]
    {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::POST, Method::OPTIONS] {
            let answer = client.request(method.clone(), path, &[], "").await.expect(403);
            assert!(!answer.headers.contains_key("etag"), "{method} {path}");
        }
    }
    assert_eq!(client.get("/docs/a", &[write]).await.expect(200).text(), "kept");
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
    second.blob(Method::GET, "/docs/a", &[], "").await.expect(404);
    second.create_container("docs").await.expect(201);
    second.put("/docs/a", &[], "of the second").await.expect(201);
    let by_second_key = Azure::new(client.clone(), "first", KEYS[1]);
    assert_eq!(by_second_key.blob(Method::GET, "/docs/a", &[], "").await.expect(200).text(), "of the first");
    Azure::new(client.clone(), "second", KEYS[0]).blob(Method::GET, "/docs/a", &[], "").await.expect(403);
    Azure::development(client.clone()).blob(Method::GET, "/docs/a", &[], "").await.expect(403);
    for path in ["/", "/docs", "/docs/a", "/second.docs/a"] {
        client.get(path, &[]).await.expect(401);
        client.get(path, &[("authorization", "Bearer c2VjcmV0")]).await.expect(401);
    }
    client.put("/docs/a", &[], "anybody").await.expect(401);
    let banner = gateway.stop().stdout;
    assert!(banner.contains("AccountName=first;AccountKey=KEY;") && !banner.contains(KEYS[0]), "{banner}");

    let gateway = serve(folder.path(), &["--config", file.to_str().unwrap(), "--read-token", "r"]);
    let client = Client::new(gateway.address());
    let read = ("authorization", "Bearer r");
    assert_eq!(client.get("/docs/a", &[read]).await.expect(200).text(), "of the first");
    assert_eq!(client.get("/second.docs/a", &[read]).await.expect(200).text(), "of the second");
    client.put("/docs/a", &[read], "x").await.expect(403);
}

#[tokio::test]
async fn accounts_allow_only_signed_requests_from_other_machines() {
    let account = format!("first:{}", KEYS[0]);
    let ((gateway, _folder), _) = start(&["--listen", "0.0.0.0:0", "--accounts", &account]);
    let client = Client::new(([127, 0, 0, 1], gateway.address().port()).into());
    Azure::new(client.clone(), "first", KEYS[0]).create_container("docs").await.expect(201);
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
        (&["--listen", "0.0.0.0:0", "--accounts", DEVELOPMENT_ACCOUNT], "is public"),
        (&["--listen", "0.0.0.0:0", "--accounts", &known], "is public"),
        (&["--listen", "0.0.0.0:0", "--write-token", LONG, "--accounts", DEVELOPMENT_ACCOUNT], "is public"),
        (&["--listen-tables", "0.0.0.0:0", "--accounts", DEVELOPMENT_ACCOUNT], "is public"),
        (&["--listen-tables", "0.0.0.0:0"], "--accounts NAME:KEY"),
        (&["--listen-tables", "127.0.0.1:0", "--write-token", "w"], "--accounts NAME:KEY"),
        (&["--listen", "0.0.0.0:0", "--write-token", "w"], "a token with fewer than 16 characters can be guessed"),
        (
            &["--listen", "0.0.0.0:0", "--write-token", LONG, "--read-token", "r"],
            "a token with fewer than 16 characters can be guessed",
        ),
        (&["--listen-tables", "0.0.0.0:0", "--accounts", "first:AA=="], "fewer than 16 bytes and can be guessed"),
        (&["--accounts", "first"], "no key"),
        (&["--accounts", "first:no-base64!"], "base64"),
        (&["--accounts", "first:c2VjcmV0,first:c2VjcmV0"], "same name"),
    ] {
        let end = run(MEMORY.iter().chain(flags));
        assert_eq!(end.status.code(), Some(2), "{flags:?}: {end:#?}");
        assert!(end.stderr.contains(expected) && !end.stderr.contains("no-base64"), "{flags:?}: {end:#?}");
    }
}

#[tokio::test]
async fn the_development_account_can_be_combined_with_tokens() {
    let (_gateway, client) = start(&["--write-token", "w", "--accounts", DEVELOPMENT_ACCOUNT]);
    Azure::development(client.clone()).create_container("docs").await.expect(201);
    client.get("/", &[]).await.expect(401);
    client.get("/", &[("authorization", "Bearer w")]).await.expect(200);
}
