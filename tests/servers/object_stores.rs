//! The gateway in front of object stores; `ifmatch check`, `lock` and `elect` on those that honour conditions, and on some that
//! ignore them.

use std::convert::Infallible;
use std::process::{Command, Output};
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use ifmatch_testbed::{azurite, s3, within};
use serde_json::Value;
use support::s3::{S3, race};
use support::{Client, Gateway, Guarded, Server, eventually, full};
use tokio::sync::Notify;
use tokio::task::{block_in_place, spawn_blocking};
use tower::service_fn;

type Settings = Vec<(String, String)>;

fn ifmatch(settings: &Settings) -> Command {
    let mut command = Gateway::command();
    for (name, _) in std::env::vars_os() {
        if ["AWS_", "AZURE_", "GOOGLE_"]
            .iter()
            .any(|cloud| name.to_string_lossy().starts_with(cloud))
        {
            command.env_remove(name);
        }
    }
    command.envs(settings.iter().cloned());
    command
}

/// Runs `ifmatch` without blocking the servers of the test.
async fn run_on(settings: &Settings, args: &[&str]) -> Output {
    let mut command = ifmatch(settings);
    command.args(args);
    spawn_blocking(move || command.output().expect("ifmatch starts"))
        .await
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_exclude_each_other_through_s3() {
    let server = s3::start().await;
    excludes(server.settings(), "s3://bucket/locks/a%20b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_exclude_each_other_through_azure() {
    let server = azurite::start().await;
    excludes(server.settings(), "az://container/locks/a%20b").await;
}

async fn excludes(settings: Settings, url: &'static str) {
    let first = spawn_blocking({
        let settings = settings.clone();
        move || {
            let first = Guarded::of(
                ifmatch(&settings),
                &["lock", url],
                "echo $IFMATCH_FENCE; exec sleep 600",
            );
            let fence: u64 = first.line().parse().expect("a number");
            (first, fence)
        }
    });
    let (mut first, fence) = first.await.unwrap();
    let others = run_on(
        &settings,
        &["lock", url, "--wait", "0s", "--", "echo", "ran"],
    )
    .await;
    assert_eq!(
        (others.status.code(), &*others.stdout),
        (Some(75), &b""[..]),
        "{others:?}"
    );
    first.signal("TERM");
    let code = spawn_blocking(move || first.code());
    assert_eq!(code.await.unwrap(), Some(143));
    let script = ["--", "sh", "-c", "echo $IFMATCH_FENCE; exit 7"];
    for command in [
        &["lock", url, "--wait", "0s"][..],
        &["elect", url, "--name", "host"],
    ] {
        let next = run_on(&settings, &[command, &script].concat()).await;
        assert_eq!(next.status.code(), Some(7), "{next:?}");
        assert!(
            text(&next.stdout).trim().parse::<u64>().unwrap() > fence,
            "{next:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_stores_honour_conditions() {
    let (s3, azurite) = (s3::start().await, azurite::start().await);
    for (settings, url) in [
        (s3.settings(), "s3://bucket/some/folder"),
        (azurite.settings(), "az://container"),
    ] {
        let end = run_on(&settings, &["check", "--json", url]).await;
        assert_eq!(end.status.code(), Some(0), "{end:?}");
        let report: Value = serde_json::from_slice(&end.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        assert!(
            checks.len() == 8 && checks.iter().all(|check| check["result"] == "yes"),
            "{report:#}"
        );
    }
    // Nothing remains.
    assert_eq!(s3.objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ignores_conditions_is_found() {
    let server = s3::start_without_conditions().await;
    let end = run_on(&server.settings(), &["check", "s3://bucket/folder"]).await;
    assert_eq!(end.status.code(), Some(3), "{end:?}");
    let table = text(&end.stdout);
    for found in [
        "a creation is rejected if the object exists",
        "a replacement of an old version is rejected",
        "a replacement of an absent object is rejected",
        "one of 16 concurrent creates succeeds",
        "one of 16 concurrent replacements succeeds",
    ] {
        let line = table
            .lines()
            .find(|line| line.contains(found))
            .unwrap_or_else(|| panic!("{table}"));
        assert!(line.starts_with("NO "), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_container_is_an_error() {
    let server = azurite::start().await;
    let url = "az://no-such-container/a";
    let end = run_on(&server.settings(), &["lock", url, "--", "true"]).await;
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    assert!(text(&end.stderr).contains("ContainerNotFound"), "{end:?}");
    let end = run_on(&server.settings(), &["check", url]).await;
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    assert!(text(&end.stderr).contains("the store rejected"), "{end:?}");
}

#[test]
fn urls_that_name_no_shared_object_are_errors() {
    let unsigned = vec![("AWS_SKIP_SIGNATURE".to_owned(), "true".to_owned())];
    for (args, reason) in [
        (&["lock", "s3://bucket"][..], "not the URL of an object"),
        (&["lock", "memory:///a"], "not the URL of a lock"),
        (&["elect", "file:///a"], "not the URL of a lock"),
        (&["lock", "--header", "a: b", "s3://bucket/a"], "--header"),
    ] {
        let end = ifmatch(&unsigned)
            .args(args)
            .args(["--", "true"])
            .output()
            .expect("ifmatch starts");
        assert_eq!(end.status.code(), Some(2), "{end:?}");
        assert!(text(&end.stderr).contains(reason), "{end:?}");
    }
}

/// One writer wins in front of a server for S3 that ignores conditions.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_sixteen_writers_wins() {
    let (careless, folder) = (
        s3::start_without_conditions().await,
        tempfile::tempdir().unwrap(),
    );
    let mut command = Gateway::command();
    command.args([
        "serve",
        "--store",
        "s3://bucket/some",
        "--listen",
        "127.0.0.1:0",
        "--listen-s3",
        "127.0.0.1:0",
    ]);
    command
        .arg("--data")
        .arg(folder.path())
        .envs(careless.settings());
    let mut gateway = block_in_place(|| Gateway::launch(command));
    let s3 = S3::development(block_in_place(|| gateway.s3()));
    s3.put("/docs", &[], "").await.expect(200);
    race(&[s3], "/docs", 5).await;
}

/// Only a process that has the register for itself can tell that the write was killed, and lets others go ahead sooner.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_ends_the_permits_of_killed_writes_soon() {
    let (store, folder) = (s3::start().await, tempfile::tempdir().unwrap());
    let (inner, reached) = (Client::new(store.address()), Arc::new(Notify::new()));
    let at_store = Arc::clone(&reached);
    // Forwards all requests but one write, which never ends.
    let front = Server::start(service_fn(move |request: Request<Incoming>| {
        let (inner, reached) = (inner.clone(), Arc::clone(&reached));
        async move {
            if request.method() == Method::PUT && request.uri().path().ends_with("/c/held") {
                reached.notify_one();
                std::future::pending::<()>().await;
            }
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let answer = inner.send(Request::from_parts(head, full(body))).await;
            let mut response = Response::new(full(answer.body));
            (*response.status_mut(), *response.headers_mut()) = (answer.status, answer.headers);
            Ok::<_, Infallible>(response)
        }
    }))
    .await;
    let endpoint = format!("http://{}", front.address());
    let mut command = Gateway::command();
    command
        .args([
            "serve",
            "--store",
            "s3://bucket/some",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ])
        .arg(folder.path());
    command.envs(store.settings()).env("AWS_ENDPOINT", endpoint);
    let mut gateway = block_in_place(|| Gateway::launch(command));
    let client = Client::new(gateway.address());
    client.put("/c/other", &[], "whole").await.expect(201);
    let held = tokio::spawn(async move {
        let put = Request::put("/c/held")
            .header("host", "test")
            .body(full("held"))
            .unwrap();
        client.try_send(put).await.map(drop)
    });
    within("the write reaches the store", at_store.notified()).await;
    let told = "an earlier process ended during writes";
    assert!(!gateway.stderr().contains(told), "{}", gateway.stderr());
    block_in_place(|| {
        gateway.restart();
        eventually(told, || gateway.stderr().contains(told).then_some(()));
    });
    assert!(held.await.unwrap().is_err(), "its gateway was killed");
    let client = Client::new(gateway.address());
    assert_eq!(
        client.get("/c/other", &[]).await.expect(200).text(),
        "whole"
    );
}
