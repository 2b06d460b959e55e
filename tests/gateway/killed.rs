//! A gateway in front of an object store that is killed during a write.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use ifmatch_testbed::within;
use support::{Client, Gateway, Server, full};
use tokio::sync::Notify;
use tower::service_fn;

use crate::eventually;

/// Only a process that has the register for itself can tell that the write was killed, and lets others go ahead sooner.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_ends_the_permits_of_killed_writes_soon() {
    let (store, folder) = (ifmatch_testbed::s3::start().await, tempfile::tempdir().unwrap());
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
    command.args(["serve", "--store", "s3://bucket/some", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    command.envs(store.settings()).env("AWS_ENDPOINT", endpoint);
    let mut gateway = tokio::task::block_in_place(|| Gateway::launch(command));
    let client = Client::new(gateway.address());
    client.put("/c/other", &[], "whole").await.expect(201);
    let held = tokio::spawn(async move {
        let put = Request::put("/c/held").header("host", "test").body(full("held")).unwrap();
        client.try_send(put).await.map(drop)
    });
    within("the write reaches the store", at_store.notified()).await;
    let told = "an earlier process ended during writes";
    assert!(!gateway.stderr().contains(told), "{}", gateway.stderr());
    tokio::task::block_in_place(|| {
        gateway.restart();
        eventually(told, || gateway.stderr().contains(told).then_some(()));
    });
    assert!(held.await.unwrap().is_err(), "its gateway was killed");
    let client = Client::new(gateway.address());
    assert_eq!(client.get("/c/other", &[]).await.expect(200).text(), "whole");
}
