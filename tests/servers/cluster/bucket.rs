//! Several gateways on a bucket of their own: all that a folder has, and no wait for a gateway that was killed.

use futures_util::future::join_all;
use http::Method;
use ifmatch_testbed::{postgres, redis};
use support::azure::Azure;
use support::run;
use tokio::task::block_in_place;

use super::gateways::race;
use super::{Cluster, gateway_in_bucket};

#[tokio::test(flavor = "multi_thread")]
async fn no_update_in_a_bucket_is_lost() {
    let cluster = Cluster::in_bucket(3).await;
    race(&cluster.clients()).await;
}

/// A blob is writable at once after the death of its writer: there is no permit that must end first.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_keeps_nobody_from_its_blobs() {
    let mut cluster = Cluster::in_bucket(2).await;
    let clients = cluster.clients();
    for (writer, last) in cluster
        .kill_during_writes(|number| format!("{number:010000}"))
        .await
    {
        let path = format!("/docs/{writer}");
        let read = clients[1].get(&path, &[]).await;
        let Some(last) = last else { continue };
        // The write after the last acknowledged one may have taken effect.
        let found: usize = read.expect(200).text().parse().unwrap();
        assert!(
            found == last || found == last + 1,
            "writer {writer}: {found} after {last}"
        );
        // A gateway with permits would wait for a minute, and then answer 409.
        clients[1].put(&path, &[], "after").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_has_what_a_folder_has() {
    let cluster = Cluster::in_bucket(2).await;
    let azure: Vec<_> = cluster
        .clients()
        .into_iter()
        .map(Azure::development)
        .collect();
    azure[0].create_container("docs").await.expect(201);
    azure[0]
        .put(
            "/docs/a",
            &[("x-ms-tags", "state=new"), ("x-ms-access-tier", "Cool")],
            "first",
        )
        .await
        .expect(201);
    let tags = azure[1]
        .blob(Method::GET, "/docs/a?comp=tags", &[], "")
        .await
        .expect(200);
    assert!(tags.text().contains("state"), "{}", tags.text());
    let taken = azure[1]
        .blob(
            Method::PUT,
            "/docs/a?comp=snapshot",
            &[("content-length", "0")],
            "",
        )
        .await
        .expect(201);
    azure[0].put("/docs/a", &[], "second").await.expect(201);
    let snapshot = format!("/docs/a?snapshot={}", taken.header("x-ms-snapshot"));
    assert_eq!(
        azure[0]
            .blob(Method::GET, &snapshot, &[], "")
            .await
            .expect(200)
            .text(),
        "first"
    );
    azure[0]
        .blob(Method::DELETE, "/docs/a", &[], "")
        .await
        .expect(409);

    azure[0]
        .blob(
            Method::PUT,
            "/docs/log",
            &[("x-ms-blob-type", "AppendBlob"), ("content-length", "0")],
            "",
        )
        .await
        .expect(201);
    let appends = (0..8_usize).map(|block| {
        let azure = &azure[block % 2];
        async move {
            azure
                .blob(
                    Method::PUT,
                    "/docs/log?comp=appendblock",
                    &[],
                    format!("{block:01000}"),
                )
                .await
        }
    });
    for appended in join_all(appends).await {
        appended.expect(201);
    }
    let log = azure[1]
        .blob(Method::GET, "/docs/log", &[], "")
        .await
        .expect(200);
    assert_eq!(log.text().len(), 8_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_pair_of_bucket_and_register_does_not_start() {
    let cluster = Cluster::in_bucket(1).await;
    let bucket = |name: &str| format!("file://{}", cluster.folder.path().join(name).display());
    let refused = |args: &[&str], reason: &str| {
        let finished = block_in_place(|| run(args.iter().copied()));
        assert_ne!(finished.status.code(), Some(0), "{}", finished.stderr);
        assert!(finished.stderr.contains(reason), "{}", finished.stderr);
    };
    let register = cluster.register.url();
    refused(
        &["serve", "--data", &bucket("other"), "--register", &register],
        "the register describes another store",
    );
    let empty = postgres::start(&[]).await;
    super::migrate(&empty);
    refused(
        &[
            "serve",
            "--data",
            &bucket("bucket"),
            "--register",
            &empty.url(),
        ],
        "belongs to a gateway with another register",
    );
    refused(
        &[
            "serve",
            "--store",
            &bucket("bucket"),
            "--register",
            &register,
        ],
        "belongs to gateways with --data",
    );
    let redis = redis::durable().await;
    refused(
        &[
            "serve",
            "--data",
            &bucket("third"),
            "--register",
            &redis.url(),
        ],
        "may lose acknowledged changes",
    );
    block_in_place(|| gateway_in_bucket(cluster.folder.path(), &register));
}
