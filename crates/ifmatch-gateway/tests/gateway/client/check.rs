//! `ifmatch check` on servers that honour conditions, and on one that ignores them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use support::{Gateway, Server, run};
use tower::service_fn;

#[test]
fn the_gateway_honours_conditions() {
    let gateway = Gateway::on_folder(&[]);
    let end = run(["check", &gateway.url("/box")]);
    assert_eq!(end.status.code(), Some(0), "{end:#?}");
    assert!(
        end.stdout
            .contains("yes      13.1.1    one of 16 concurrent replacements succeeds\n"),
        "{}",
        end.stdout
    );
    assert!(
        end.stdout.lines().all(|line| line.chars().count() <= 80),
        "{}",
        end.stdout
    );
    assert!(
        !end.stdout.contains("304"),
        "not part of the short check: {}",
        end.stdout
    );
    let json = run(["check", "--json", &gateway.url("/box")]).stdout;
    assert!(
        json.contains("\"winners of 10 races: 1 1 1 1 1 1 1 1 1 1\""),
        "{json}"
    );
}

/// A server that ignores all conditions, but wants a field and a query in each request.
async fn careless() -> Server {
    let stored = Arc::new(Mutex::new(HashMap::<String, Bytes>::new()));
    let service = service_fn(move |request: Request<Incoming>| {
        let stored = Arc::clone(&stored);
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let known = request.headers().contains_key("x-key")
                && request.uri().query() == Some("sig=a%2Fb");
            let body = request
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes();
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
            response
                .headers_mut()
                .insert("etag", "\"constant\"".parse().expect("a tag"));
            Ok::<_, Infallible>(response)
        }
    });
    Server::start(service).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_conditions_is_found() {
    let server = careless().await;
    let url = format!("http://{}/box?sig=a%2Fb", server.address());
    let end = tokio::task::spawn_blocking(move || run(["check", "--header", "x-key: 1", &url]))
        .await
        .unwrap();
    assert_eq!(end.status.code(), Some(3), "{end:#?}");
    for found in [
        "a write changes the tag",
        "If-Match with an old tag rejects PUT",
        "If-Match with an old tag rejects DELETE",
        "If-None-Match: * rejects PUT of an existing resource",
        "one of 16 concurrent creates succeeds",
    ] {
        let line = end
            .stdout
            .lines()
            .find(|line| line.contains(found))
            .unwrap_or_else(|| panic!("{end:#?}"));
        assert!(line.starts_with("NO "), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_rejects_all_writes_is_an_error() {
    let server = careless().await;
    let url = format!("http://{}/box?sig=secret", server.address());
    let end = tokio::task::spawn_blocking(move || run(["check", &url]))
        .await
        .unwrap();
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert!(
        end.stderr.contains("(403)") && end.stderr.contains("--token-file FILE"),
        "{end:#?}"
    );
    assert!(!end.stderr.contains("secret"), "{end:#?}");
}

#[test]
fn a_server_that_is_down_is_an_error() {
    let end = run(["check", "http://127.0.0.1:1/box"]);
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert_eq!(run(["check", "127.0.0.1"]).status.code(), Some(2));
}
