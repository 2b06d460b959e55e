//! Requests that meet at different gateways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use ifmatch_testbed::{etcd, within};
use support::azure::Azure;
use support::{Answer, Client};
use tokio::task::{JoinHandle, block_in_place};

use super::{Cluster, gateway};

/// Number of writers in a race.
const WRITERS: usize = 9;
/// Number of increments by each writer.
const INCREMENTS: usize = 10;

/// Adds one to the number in a blob, again after each lost race.
async fn increment(client: &Client, path: &str) {
    loop {
        let read = client.get(path, &[]).await.expect(200);
        let next = (read.text().parse::<usize>().unwrap() + 1).to_string();
        let written = client.put(path, &[("if-match", read.etag())], next).await;
        match written.status.as_u16() {
            200 => return,
            412 | 409 => {}
            _ => panic!("{written:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost() {
    let cluster = Cluster::start(3).await;
    race(&cluster.clients()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_on_etcd() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = etcd::start(&[]).await;
    let register = etcd.url();
    let gateways: Vec<_> = (0..3)
        .map(|_| block_in_place(|| gateway(folder.path(), &register)))
        .collect();
    race(
        &gateways
            .iter()
            .map(|gateway| Client::new(gateway.address()))
            .collect::<Vec<_>>(),
    )
    .await;
}

/// Lets clients of three gateways increment one number.
pub(super) async fn race(clients: &[Client]) {
    clients[0].put("/docs/counter", &[], "0").await.expect(201);
    let writers = (0..WRITERS).map(|writer| {
        let client = clients[writer % 3].clone();
        tokio::spawn(async move {
            for _ in 0..INCREMENTS {
                increment(&client, "/docs/counter").await;
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    for client in clients {
        let read = client.get("/docs/counter", &[]).await.expect(200);
        assert_eq!(read.text(), (WRITERS * INCREMENTS).to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_creations_wins() {
    let cluster = Cluster::start(3).await;
    let clients = cluster.clients();
    for round in 0..5 {
        let path = format!("/docs/{round}");
        let creations = (0..WRITERS).map(|writer| {
            let (client, path) = (clients[writer % 3].clone(), path.clone());
            async move {
                client
                    .put(&path, &[("if-none-match", "*")], writer.to_string())
                    .await
            }
        });
        let answers: Vec<Answer> = join_all(creations).await;
        let won: Vec<_> = (0..WRITERS)
            .filter(|writer| answers[*writer].status == 201)
            .collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        for client in &clients {
            let read = client.get(&path, &[]).await.expect(200);
            assert_eq!(
                (read.text(), read.etag()),
                (won[0].to_string().as_str(), answers[won[0]].etag())
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_one_gateway_binds_the_others() {
    let cluster = Cluster::start(3).await;
    let clients = cluster.clients();
    let azure: Vec<_> = clients.iter().cloned().map(Azure::development).collect();
    azure[0].create_container("docs").await.expect(201);
    azure[0].put("/docs/a", &[], "first").await.expect(201);
    let leased = azure[0]
        .lease("/docs/a", "acquire", &[("x-ms-lease-duration", "-1")])
        .await
        .expect(201);
    let id = leased.header("x-ms-lease-id").to_owned();
    azure[1]
        .lease("/docs/a", "acquire", &[("x-ms-lease-duration", "15")])
        .await
        .expect(409);
    azure[1].put("/docs/a", &[], "second").await.expect(412);
    azure[2]
        .put("/docs/a", &[("x-ms-lease-id", &id)], "third")
        .await
        .expect(201);
    assert_eq!(
        clients[1].get("/docs/a", &[]).await.expect(200).text(),
        "third"
    );
    azure[1]
        .lease("/docs/a", "break", &[("x-ms-lease-break-period", "0")])
        .await
        .expect(202);
    azure[0].put("/docs/a", &[], "fourth").await.expect(201);

    let container = "/docs?restype=container";
    azure[2]
        .lease(container, "acquire", &[("x-ms-lease-duration", "-1")])
        .await
        .expect(201);
    azure[0]
        .blob(Method::DELETE, container, &[], "")
        .await
        .expect(412);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_sent_to_different_gateways_make_one_blob() {
    let cluster = Cluster::start(3).await;
    let azure: Vec<_> = cluster
        .clients()
        .into_iter()
        .map(Azure::development)
        .collect();
    azure[0].create_container("docs").await.expect(201);
    for (index, id) in ["MDA=", "MDE=", "MDI="].into_iter().enumerate() {
        let path = format!("/docs/blob?comp=block&blockid={}", id.replace('=', "%3D"));
        azure[index]
            .blob(Method::PUT, &path, &[], format!("part {index} "))
            .await
            .expect(201);
    }
    let list =
        "<BlockList><Latest>MDA=</Latest><Latest>MDE=</Latest><Latest>MDI=</Latest></BlockList>";
    azure[1]
        .blob(Method::PUT, "/docs/blob?comp=blocklist", &[], list)
        .await
        .expect(201);
    let read = azure[2]
        .blob(Method::GET, "/docs/blob", &[], "")
        .await
        .expect(200);
    assert_eq!(read.text(), "part 0 part 1 part 2 ");
}

/// A container is deleted and created by one gateway while the others write to it. Afterwards, a deletion leaves
/// nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_container_stays_empty() {
    let cluster = Cluster::start(3).await;
    let clients = cluster.clients();
    let azure: Vec<_> = clients.iter().cloned().map(Azure::development).collect();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers = (0..4).map(|writer| {
        let (client, acknowledged) = (clients[writer % 2 + 1].clone(), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            for number in 0..15 {
                let path = format!("/docs/{writer}-{number}");
                // Creates the container if it is missing.
                let written = client.put(&path, &[], "content").await;
                match written.status.as_u16() {
                    201 => drop(acknowledged.fetch_add(1, Relaxed)),
                    404 | 409 | 503 => {}
                    _ => panic!("{written:?}"),
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    while !writers.iter().all(JoinHandle::is_finished) {
        azure[0]
            .blob(Method::DELETE, "/docs?restype=container", &[], "")
            .await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(acknowledged.load(Relaxed) > 0, "no write was acknowledged");
    within("the deletion of the container", async {
        loop {
            let deleted = azure[0]
                .blob(Method::DELETE, "/docs?restype=container", &[], "")
                .await;
            if matches!(deleted.status.as_u16(), 202 | 404) {
                break;
            }
        }
    })
    .await;
    azure[1].create_container("docs").await.expect(201);
    for azure in &azure {
        let listed = azure
            .blob(Method::GET, "/docs?restype=container&comp=list", &[], "")
            .await
            .expect(200);
        assert!(!listed.text().contains("<Blob>"), "{}", listed.text());
    }
}

/// A client waits at one gateway for a change that another one carries out.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_a_change_by_another_gateway() {
    let cluster = Cluster::start(2).await;
    let [one, other] = &cluster.clients()[..] else {
        unreachable!()
    };
    let tag = other
        .put("/docs/a", &[], "one")
        .await
        .expect(201)
        .etag()
        .to_owned();
    let wait = ("prefer", "wait=60");
    let unless_changed = [("if-none-match", &*tag), wait];
    let (poll, ()) = tokio::join!(one.get("/docs/a", &unless_changed), async {
        waiting(one).await;
        other.put("/docs/a", &[], "two").await.expect(200);
    });
    assert_eq!(poll.expect(200).text(), "two");
    let lease = other
        .request(
            Method::POST,
            "/docs/a?lease",
            &[("lease-duration", "-1")],
            "",
        )
        .await
        .expect(201);
    let tag = one
        .get("/docs/a?lease", &[])
        .await
        .expect(200)
        .etag()
        .to_owned();
    let unless_changed = [("if-none-match", &*tag), wait];
    let (poll, ()) = tokio::join!(one.get("/docs/a?lease", &unless_changed), async {
        waiting(one).await;
        let id = [("lease-id", lease.header("lease-id"))];
        other
            .request(Method::DELETE, "/docs/a?lease", &id, "")
            .await
            .expect(204);
    });
    assert_eq!(poll.expect(200).json()["state"], "available");
}

/// Returns once a request waits at the gateway.
async fn waiting(client: &Client) {
    within("a request that waits at the gateway", async {
        while !client
            .get("/-/metrics", &[])
            .await
            .expect(200)
            .text()
            .contains("ifmatch_waits 1")
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A fencing token that one gateway has seen protects from late writes through another.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_through_another_gateway_is_refused() {
    let cluster = Cluster::start(2).await;
    let [one, other] = &cluster.clients()[..] else {
        unreachable!()
    };
    one.put("/docs/a", &[("lease-token", "34")], "34")
        .await
        .expect(201);
    let late = other
        .put("/docs/a", &[("lease-token", "33")], "33")
        .await
        .expect(412);
    assert_eq!(late.header("x-ms-error-code"), "LeaseTokenSuperseded");
    other
        .put("/docs/a", &[("lease-token", "34")], "34 again")
        .await
        .expect(200);
}
