//! `--cache` on an object store: current versions, and nothing for those who may not read.

use support::azure::Azure;
use support::raw::exchange;
use support::{Answer, Client, Gateway, run};

const CACHE: [&str; 2] = ["--cache", "64MiB"];

fn get(gateway: &Gateway, path: &str, fields: &str) -> Answer {
    exchange(
        gateway.address(),
        format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n"),
    )
}

fn put(gateway: &Gateway, path: &str, fields: &str, content: &str) -> Answer {
    let length = content.len();
    let head =
        format!("PUT {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n{fields}\r\n");
    exchange(gateway.address(), head + content)
}

fn status(answer: &Answer) -> &str {
    answer.header("cache-status")
}

/// Writes a blob with a long lifetime, and reads it so that it is cached.
fn stored(gateway: &Gateway, path: &str) {
    put(gateway, path, "cache-control: max-age=600\r\n", "first").expect(201);
    crate::eventually("a response from the cache", || {
        status(&get(gateway, path, "").expect(200))
            .contains("fwd-status=304")
            .then_some(())
    });
}

#[test]
fn each_response_has_the_current_version() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file://{}", folder.path().display());
    let one = Gateway::start(["serve", "--store", &store].iter().chain(&CACHE));
    stored(&one, "/c/a");
    // Changed under another URL, by another program, and under its own URL.
    put(&one, "/c/%61", "", "second").expect(200);
    assert_eq!(get(&one, "/c/a", "").expect(200).text(), "second");
    std::fs::write(folder.path().join("c/a"), "third").unwrap();
    let read = get(&one, "/c/a", "").expect(200);
    assert_eq!(read.text(), "third");
    put(
        &one,
        "/c/a",
        &format!("if-match: {}\r\n", read.etag()),
        "fourth",
    )
    .expect(200);
    put(
        &one,
        "/c/a",
        &format!("if-match: {}\r\n", read.etag()),
        "fifth",
    )
    .expect(412);
    assert_eq!(get(&one, "/c/a", "").expect(200).text(), "fourth");
    exchange(one.address(), "DELETE /c/a HTTP/1.1\r\nhost: test\r\n\r\n").expect(204);
    get(&one, "/c/a", "").expect(404);
}

#[test]
fn conditions_and_ranges_work_as_without_a_cache() {
    let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&CACHE));
    stored(&gateway, "/c/a");
    let read = get(&gateway, "/c/a", "").expect(200);
    get(
        &gateway,
        "/c/a",
        &format!("if-none-match: {}\r\n", read.etag()),
    )
    .expect(304);
    get(&gateway, "/c/a", "if-match: \"other\"\r\n").expect(412);
    assert_eq!(
        get(&gateway, "/c/a", "range: bytes=1-2\r\n")
            .expect(206)
            .text(),
        "ir"
    );
    get(&gateway, "/c/a", "range: bytes=9-\r\n").expect(416);
    assert_eq!(
        get(&gateway, "/c", "").expect(200).json()["blobs"][0]["name"],
        "a"
    );
}

#[test]
fn clients_without_a_token_get_no_cached_blobs() {
    let flags = ["--read-token", "reader", "--write-token", "writer"];
    let gateway = Gateway::start(
        ["serve", "--store", "memory://"]
            .iter()
            .chain(&CACHE)
            .chain(&flags),
    );
    let (reader, writer) = (
        "authorization: Bearer reader\r\n",
        "authorization: Bearer writer\r\n",
    );
    put(&gateway, "/c/a", writer, "first").expect(201);
    crate::eventually("a response from the cache", || {
        status(&get(&gateway, "/c/a", reader).expect(200))
            .contains("fwd-status=304")
            .then_some(())
    });
    get(&gateway, "/c/a", "").expect(401);
    get(&gateway, "/c/a", "authorization: Bearer other\r\n").expect(401);
    // A header that claims a signature doesn't help.
    for signed in [
        "x-ms-version: 2025-01-05\r\n",
        "x-ms-version: 2025-01-05\r\nauthorization: SharedKey a:b\r\n",
    ] {
        let refused = get(&gateway, "/c/a", signed);
        assert!(
            [400, 401, 403].contains(&refused.status.as_u16()),
            "{refused:?}"
        );
        assert!(!refused.text().contains("first"), "{refused:?}");
    }
}

#[tokio::test]
async fn leases_and_writes_in_azures_dialect_take_effect_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let gateway = Gateway::start(
        ["serve", "--store", "memory://", "--data", data]
            .iter()
            .chain(&CACHE),
    );
    let azure = Azure::development(Client::new(gateway.address()));
    stored(&gateway, "/docs/a");
    azure.put("/docs/a", &[], "second").await.expect(201);
    assert_eq!(get(&gateway, "/docs/a", "").expect(200).text(), "second");
    let lease = "x-ms-lease-id: 00000000-0000-0000-0000-000000000001\r\n";
    get(&gateway, "/docs/a", lease).expect(412);
    let proposed = (
        "x-ms-proposed-lease-id",
        "00000000-0000-0000-0000-000000000001",
    );
    azure
        .lease(
            "/docs/a",
            "acquire",
            &[proposed, ("x-ms-lease-duration", "-1")],
        )
        .await
        .expect(201);
    get(&gateway, "/docs/a", lease).expect(200);
    get(
        &gateway,
        "/docs/a",
        "x-ms-lease-id: 00000000-0000-0000-0000-000000000002\r\n",
    )
    .expect(412);
    put(&gateway, "/docs/a", "", "third").expect(412);
    assert_eq!(get(&gateway, "/docs/a", "").expect(200).text(), "second");
}

#[test]
fn a_cache_needs_a_bucket() {
    let end = run(["serve", "--data", "d", "--cache", "1MiB"]);
    assert_eq!(end.status.code(), Some(2), "{end:#?}");
    assert!(end.stderr.contains("--cache needs a bucket"), "{end:#?}");
}
