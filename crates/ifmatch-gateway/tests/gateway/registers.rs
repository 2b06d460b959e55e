//! `--register`, which keeps the records of an object store.

use support::azure::Azure;
use support::raw::exchange;
use support::{Client, Gateway, run};

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

#[cfg(not(any(
    feature = "cloud",
    feature = "etcd",
    feature = "postgres",
    feature = "redis"
)))]
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
        ("s3://bucket/prefix", "cloud", "cloud"),
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
