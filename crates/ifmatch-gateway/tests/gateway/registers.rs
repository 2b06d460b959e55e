//! Object stores: `--register`, for their records, and `--cache`.

use support::azure::Azure;
use support::raw::exchange;
use support::{Answer, Client, Gateway, run};

#[tokio::test]
async fn a_register_in_a_file_keeps_leases_across_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file://{}", folder.path().join("bodies").display());
    let register = format!(
        "redb://{}",
        folder.path().join("records/register.redb").display()
    );
    let args = ["serve", "--store", &store, "--register", &register];
    let mut gateway = Gateway::start(args);
    let ready = exchange(gateway.address(), crate::get("/-/ready")).expect(200);
    assert_eq!(ready.json(), serde_json::json!({ "status": "ready" }));
    let client = Client::new(gateway.address());
    client.put("/docs/a", &[], "first").await.expect(201);
    let azure = Azure::development(client);
    azure
        .lease("/docs/a", "acquire", &[("x-ms-lease-duration", "-1")])
        .await
        .expect(201);

    let second = run(args);
    assert_eq!(second.status.code(), Some(11), "{}", second.stderr);
    assert!(
        second
            .stderr
            .contains("Another process has the database open"),
        "{}",
        second.stderr
    );

    gateway.restart();
    let client = Client::new(gateway.address());
    client.put("/docs/a", &[], "second").await.expect(412);
    assert_eq!(client.get("/docs/a", &[]).await.expect(200).text(), "first");
}

#[tokio::test]
async fn a_register_serves_another_store_after_the_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = |name: &str| format!("file://{}", folder.path().join(name).display());
    let (first, second) = (store("first"), store("second"));
    let register = format!("redb://{}", folder.path().join("register.redb").display());
    let mut gateway = Gateway::start(["serve", "--store", &first, "--register", &register]);
    Client::new(gateway.address())
        .put("/docs/a", &[], "first")
        .await
        .expect(201);
    gateway.stop();
    let refused = run(["serve", "--store", &second, "--register", &register]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("ifmatch register restored"),
        "{}",
        refused.stderr
    );
    let restored = run(["register", "restored", "--register", &register]);
    assert!(restored.status.success(), "{}", restored.stderr);
    assert!(
        restored.stdout.contains("has no epochs"),
        "{}",
        restored.stdout
    );
    let gateway = Gateway::start(["serve", "--store", &second, "--register", &register]);
    Client::new(gateway.address())
        .get("/docs/a", &[])
        .await
        .expect(404);
}

#[cfg(not(any(feature = "etcd", feature = "postgres", feature = "redis")))]
#[test]
fn a_build_names_the_feature_that_it_lacks() {
    for (register, name, feature) in [
        (
            "postgres://user:secret@127.0.0.1:1/app",
            "PostgreSQL",
            "postgres",
        ),
        ("redis://:secret@127.0.0.1:1", "Redis", "redis"),
        ("etcd://user:secret@127.0.0.1:1", "etcd", "etcd"),
        ("s3://bucket/prefix", "", "cloud"),
    ] {
        let finished = run(["serve", "--store", "memory://", "--register", register]);
        assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
        assert!(
            finished
                .stderr
                .contains(&format!("Add `--features {feature}`")),
            "{}",
            finished.stderr
        );
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
    }
}

#[test]
fn unusable_registers_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for (args, advice) in [
        (
            &[
                "serve",
                "--store",
                "memory://",
                "--register",
                "mysql://user:secret@host/d",
            ][..],
            "is not the URL of a register",
        ),
        (
            &["serve", "--data", data, "--register", "memory:"],
            "--register needs --store",
        ),
        (
            &[
                "serve",
                "--data",
                data,
                "--store",
                "memory://",
                "--register",
                "memory:",
            ],
            "both keep the records of --store. Use one.",
        ),
        (
            &["serve", "--register", "memory:"],
            "no storage. Set --data DIR",
        ),
        (
            &[
                "proxy",
                "--upstream",
                "http://127.0.0.1:1",
                "--register",
                "memory:",
            ],
            "--register needs --guard-writes",
        ),
    ] {
        let finished = run(args);
        assert_eq!(
            finished.status.code(),
            Some(2),
            "{args:?}: {}",
            finished.stderr
        );
        assert!(
            finished.stderr.contains(advice),
            "{args:?}: {}",
            finished.stderr
        );
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
    }
}

#[tokio::test]
async fn records_move_from_one_register_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file://{}", folder.path().join("bodies").display());
    let register = |name: &str| format!("redb://{}/{name}.redb", folder.path().display());
    let (one, other) = (register("one"), register("other"));
    let mut gateway = Gateway::start(["serve", "--store", &store, "--register", &one]);
    Client::new(gateway.address())
        .put("/docs/a", &[], "first")
        .await
        .expect(201);
    let azure = Azure::development(Client::new(gateway.address()));
    azure
        .lease("/docs/a", "acquire", &[("x-ms-lease-duration", "-1")])
        .await
        .expect(201);
    gateway.kill();
    let file = folder.path().join("one.redb");
    let left = std::fs::read(&file).unwrap();

    let status = run(["register", "status", "--register", &one, "--json"]);
    assert_eq!(
        status.stdout.trim(),
        r#"{"epoch":0,"guarantee":"linearizable","status":"ready"}"#,
        "{}",
        status.stderr
    );
    for _ in 0..2 {
        let copied = run(["register", "copy", "--from", &one, "--to", &other]);
        assert_eq!(copied.status.code(), Some(0), "{}", copied.stderr);
        assert!(
            copied.stdout.contains("copied and verified"),
            "{}",
            copied.stdout
        );
    }
    assert!(
        std::fs::read(&file).unwrap() == left,
        "a command that reads changed the register"
    );
    let wrong = register("wrong");
    for args in [
        &["copy", "--from", &wrong, "--to", &register("new")][..],
        &["status", "--register", &wrong],
    ] {
        let refused = run(["register"].iter().chain(args));
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains("no such file"), "{refused:#?}");
        assert!(!folder.path().join("wrong.redb").exists(), "it was created");
    }
    let gateway = Gateway::start(["serve", "--store", &store, "--register", &other]);
    Client::new(gateway.address())
        .put("/docs/a", &[], "second")
        .await
        .expect(412);
}

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
