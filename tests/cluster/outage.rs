//! A register, or a gateway, that goes away and comes back.

use std::path::Path;
use std::time::Duration;

use http::Method;
use ifmatch_testbed::{postgres, redis, within};
use support::{Client, Gateway, run};
use tokio::task::block_in_place;

use super::{Cluster, gateway};

/// Repeats a request without content until it gets this status.
async fn until(client: &Client, method: Method, path: &str, status: u16) {
    for _ in 0..3_000 {
        if client.request(method.clone(), path, &[], "").await.status == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{method} {path} has not answered {status} within a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_register_refuses_writes_and_ends_nothing() {
    let mut cluster = Cluster::start(2).await;
    let clients = cluster.clients();
    let written = clients[0].put("/docs/a", &[], "first").await.expect(201);
    cluster.register.kill();
    for client in &clients {
        let refused = client.put("/docs/a", &[("if-match", written.etag())], "second").await.expect(503);
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
        client.get("/-/health", &[]).await.expect(200);
        until(client, Method::GET, "/-/ready", 503).await;
    }
    cluster.register.restart().await;
    for client in &clients {
        until(client, Method::GET, "/-/ready", 200).await;
    }
    let read = clients[1].get("/docs/a", &[]).await.expect(200);
    assert_eq!((read.text(), read.etag()), ("first", written.etag()));
    clients[1].put("/docs/a", &[("if-match", written.etag())], "second").await.expect(200);
    assert_eq!(clients[0].get("/docs/a", &[]).await.expect(200).text(), "second");
}

/// The register answers loads, and refuses every change.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_not_ready_while_its_register_is_read_only() {
    let cluster = Cluster::start(1).await;
    let client = &cluster.clients()[0];
    client.put("/docs/a", &[], "first").await.expect(201);
    for (change, ready, written) in
        [("SET default_transaction_read_only = on", 503, 503), ("RESET default_transaction_read_only", 200, 200)]
    {
        postgres::sql(&cluster.register, &format!("ALTER SYSTEM {change}"));
        postgres::sql(&cluster.register, "SELECT pg_reload_conf()");
        until(client, Method::GET, "/-/ready", ready).await;
        // PostgreSQL's server processes reload their settings one by one.
        until(client, Method::PUT, "/docs/a", written).await;
    }
}

/// A gateway is killed in the middle of its writes. The others go on, and lose no acknowledged write.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_takes_no_acknowledged_write_with_it() {
    let mut cluster = Cluster::start(2).await;
    let clients = cluster.clients();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let client = clients[0].clone();
        writers.spawn(async move {
            let mut last = None;
            for number in 0.. {
                let request = http::Request::put(format!("/docs/{writer}")).body(support::full(number.to_string()));
                match client.try_send(request.unwrap()).await {
                    Ok(answer) if answer.status.is_success() => last = Some(number),
                    Ok(answer) => panic!("{answer:?}"),
                    Err(_) => break,
                }
            }
            (writer, last)
        });
    }
    within("the first write of the last writer", async {
        while clients[1].get("/docs/7", &[]).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    block_in_place(|| cluster.gateways[0].kill());
    while let Some(ended) = writers.join_next().await {
        let (writer, last) = ended.unwrap();
        let read = clients[1].get(&format!("/docs/{writer}"), &[]).await;
        match last {
            // The write after the last acknowledged one may have taken effect.
            Some(last) => {
                let found: usize = read.expect(200).text().parse().unwrap();
                assert!(found == last || found == last + 1, "writer {writer}: {found} after {last}");
            }
            None => assert!(matches!(read.status.as_u16(), 200 | 404), "{read:?}"),
        }
        assert!(clients[1].put(&format!("/docs/other-{writer}"), &[], "x").await.status.is_success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_registers_are_refused_with_advice() {
    let mut cluster = Cluster::start(0).await;
    let refused = |folder: &Path, url: &str, code: i32| {
        let store = format!("file://{}", folder.join("bodies").display());
        let finished = block_in_place(|| run(["serve", "--store", &store, "--register", url]));
        assert_eq!(finished.status.code(), Some(code), "{}", finished.stderr);
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
        finished.stderr
    };
    let folder = cluster.folder.path().to_owned();
    let address = cluster.register.address();
    postgres::sql(&cluster.register, "CREATE DATABASE empty");
    let missing = refused(&folder, &format!("postgres://postgres:secret@{address}/empty"), 2);
    assert!(missing.contains("ifmatch register migrate"), "{missing}");
    let unknown = refused(&folder, &format!("postgres://postgres:secret@{address}/absent"), 2);
    assert!(unknown.contains("absent"), "{unknown}");
    cluster.register.kill();
    refused(&folder, &cluster.register.url(), 1);
    cluster.register.restart().await;
    block_in_place(|| gateway(&folder, &cluster.register.url()));
}

/// A failover of Redis may lose acknowledged changes, so the operator must accept that.
#[tokio::test(flavor = "multi_thread")]
async fn a_register_that_may_lose_changes_needs_consent() {
    let server = redis::durable().await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file://{}", folder.path().join("bodies").display());
    let register = server.url();
    let args = ["serve", "--store", &store, "--register", &register];
    let refused = block_in_place(|| run(args));
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--register-may-lose"), "{}", refused.stderr);
    let gateway = block_in_place(|| Gateway::start(args.into_iter().chain(["--register-may-lose"])));
    let client = Client::new(gateway.address());
    client.put("/docs/a", &[("if-none-match", "*")], "first").await.expect(201);
    client.put("/docs/a", &[("if-none-match", "*")], "second").await.expect(412);
}
