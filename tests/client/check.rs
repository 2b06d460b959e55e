//! `ifmatch check`, `lock` and `elect` on servers that honour conditions, and on some that ignore them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use ifmatch_testbed::{azurite, s3};
use serde_json::Value;
use support::{Gateway, Server, run};
use tower::service_fn;

use crate::commands::Guarded;
#[test]
fn the_gateway_honours_conditions() {
    let gateway = Gateway::embedded(&[]);
    let end = run(["check", &gateway.url("/box")]);
    assert_eq!(end.status.code(), Some(0), "{end:#?}");
    assert!(end.stdout.contains("winners of 10 races: 1 1 1 1 1 1 1 1 1 1\n"), "{}", end.stdout);
    assert!(!end.stdout.contains("304 Not Modified"), "not part of the short check: {}", end.stdout);
}

/// A server that ignores all conditions, but wants a field and a query in each request.
async fn careless() -> Server {
    let stored = Arc::new(Mutex::new(HashMap::<String, Bytes>::new()));
    let service = service_fn(move |request: Request<Incoming>| {
        let stored = Arc::clone(&stored);
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let known = request.headers().contains_key("x-key") && request.uri().query() == Some("sig=a%2Fb");
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let mut stored = stored.lock().expect("no panic");
            let mut response = Response::new(Full::new(Bytes::new()));
            match method {
                _ if !known => *response.status_mut() = StatusCode::FORBIDDEN,
                Method::GET => match stored.get(&path) {
                    Some(body) => *response.body_mut() = Full::new(body.clone()),
                    None => *response.status_mut() = StatusCode::NOT_FOUND,
                },
                Method::PUT => drop(stored.insert(path, body)),
                _ => drop(stored.remove(&path)),
            }
            response.headers_mut().insert("etag", "\"constant\"".parse().expect("a tag"));
            Ok::<_, Infallible>(response)
        }
    });
    Server::start(service).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_conditions_is_found() {
    let server = careless().await;
    let url = format!("http://{}/box?sig=a%2Fb", server.address());
    let end = tokio::task::spawn_blocking(move || run(["check", "--header", "x-key: 1", &url])).await.unwrap();
    assert_eq!(end.status.code(), Some(3), "{end:#?}");
    for found in [
        "a write changes the tag",
        "If-Match with an old tag rejects PUT",
        "If-Match with an old tag rejects DELETE",
        "If-None-Match: * rejects PUT of an existing resource",
        "of 16 creators, one succeeds",
    ] {
        let line = end.stdout.lines().find(|line| line.contains(found)).unwrap_or_else(|| panic!("{end:#?}"));
        assert!(line.contains("  NO "), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_rejects_all_writes_is_an_error() {
    let server = careless().await;
    let url = format!("http://{}/box?sig=secret", server.address());
    let end = tokio::task::spawn_blocking(move || run(["check", &url])).await.unwrap();
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert!(end.stderr.contains("(403)") && end.stderr.contains("--token-file FILE"), "{end:#?}");
    assert!(!end.stderr.contains("secret"), "{end:#?}");
}

#[test]
fn a_server_that_is_down_is_an_error() {
    let end = run(["check", "http://127.0.0.1:1/box"]);
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert_eq!(run(["check", "127.0.0.1"]).status.code(), Some(2));
}

type Settings = Vec<(String, String)>;

fn ifmatch(settings: &Settings) -> Command {
    let mut command = Gateway::command();
    for (name, _) in std::env::vars_os() {
        if ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|cloud| name.to_string_lossy().starts_with(cloud)) {
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
    tokio::task::spawn_blocking(move || command.output().expect("ifmatch starts")).await.unwrap()
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
    let first = tokio::task::spawn_blocking({
        let settings = settings.clone();
        move || {
            let first = Guarded::of(ifmatch(&settings), &["lock", url], "echo $IFMATCH_FENCE; exec sleep 600");
            let fence: u64 = first.line().parse().expect("a number");
            (first, fence)
        }
    });
    let (mut first, fence) = first.await.unwrap();
    let others = run_on(&settings, &["lock", url, "--wait", "0s", "--", "echo", "ran"]).await;
    assert_eq!((others.status.code(), &*others.stdout), (Some(75), &b""[..]), "{others:?}");
    first.signal("TERM");
    let code = tokio::task::spawn_blocking(move || first.code());
    assert_eq!(code.await.unwrap(), Some(143));
    let script = ["--", "sh", "-c", "echo $IFMATCH_FENCE; exit 7"];
    for command in [&["lock", url, "--wait", "0s"][..], &["elect", url, "--name", "host"]] {
        let next = run_on(&settings, &[command, &script].concat()).await;
        assert_eq!(next.status.code(), Some(7), "{next:?}");
        assert!(text(&next.stdout).trim().parse::<u64>().unwrap() > fence, "{next:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_stores_honour_conditions() {
    let (s3, azurite) = (s3::start().await, azurite::start().await);
    for (settings, url) in [(s3.settings(), "s3://bucket/some/folder"), (azurite.settings(), "az://container")] {
        let end = run_on(&settings, &["check", "--json", url]).await;
        assert_eq!(end.status.code(), Some(0), "{end:?}");
        let report: Value = serde_json::from_slice(&end.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        assert!(checks.len() == 8 && checks.iter().all(|check| check["result"] == "yes"), "{report:#}");
    }
    // Nothing remains.
    assert_eq!(s3.objects(), 0);
}

/// An S3 server that ignores all conditions. Its tags are unique.
async fn store_without_conditions() -> Server {
    let stored = Arc::new(Mutex::new((HashMap::<String, (Bytes, u64)>::new(), 0)));
    let service = service_fn(move |request: Request<Incoming>| {
        let stored = Arc::clone(&stored);
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let mut stored = stored.lock().expect("no panic");
            let (objects, number) = &mut *stored;
            *number += 1;
            match method {
                Method::PUT => drop(objects.insert(path.clone(), (body, *number))),
                Method::DELETE => drop(objects.remove(&path)),
                _ => {}
            }
            let mut response = Response::new(Full::new(Bytes::new()));
            match objects.get(&path) {
                Some((body, tag)) => {
                    if method == Method::GET || method == Method::HEAD {
                        *response.body_mut() = Full::new(body.clone());
                    }
                    let tag = format!("\"{tag}\"").parse().expect("a tag");
                    response.headers_mut().insert("etag", tag);
                    let date = "Sat, 21 Nov 2026 00:00:00 GMT".parse().expect("a date");
                    response.headers_mut().insert("last-modified", date);
                }
                None if method == Method::DELETE => *response.status_mut() = StatusCode::NO_CONTENT,
                None => *response.status_mut() = StatusCode::NOT_FOUND,
            }
            Ok::<_, Infallible>(response)
        }
    });
    Server::start(service).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ignores_conditions_is_found() {
    let server = store_without_conditions().await;
    let settings = unsigned(&format!("http://{}", server.address()));
    let end = run_on(&settings, &["check", "s3://bucket/folder"]).await;
    assert_eq!(end.status.code(), Some(3), "{end:?}");
    let table = text(&end.stdout);
    for found in [
        "a creation is rejected if the object exists",
        "a replacement of an old version is rejected",
        "a replacement of an absent object is rejected",
        "of 16 creators, one succeeds",
        "of 16 writers of one version, one succeeds",
    ] {
        let line = table.lines().find(|line| line.contains(found)).unwrap_or_else(|| panic!("{table}"));
        assert!(line.contains("  NO "), "{line}");
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
    for (args, reason) in [
        (&["lock", "s3://bucket"][..], "not the URL of an object"),
        (&["lock", "memory:///a"], "not the URL of a lock"),
        (&["elect", "file:///a"], "not the URL of a lock"),
        (&["lock", "--header", "a: b", "s3://bucket/a"], "--header"),
    ] {
        let end =
            ifmatch(&unsigned("http://127.0.0.1:1")).args(args).args(["--", "true"]).output().expect("ifmatch starts");
        assert_eq!(end.status.code(), Some(2), "{end:?}");
        assert!(text(&end.stderr).contains(reason), "{end:?}");
    }
}

/// Returns the settings of a server that wants no signatures.
fn unsigned(endpoint: &str) -> Settings {
    let settings = [
        ("AWS_ENDPOINT", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_SKIP_SIGNATURE", "true"),
        ("AWS_REGION", "us-east-1"),
    ];
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}
