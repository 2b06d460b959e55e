//! Containers.

use http::Method;

use crate::support::{fixture, lease_id};

const BOX: &str = "/box?restype=container";

#[tokio::test]
async fn a_container_is_created_once_and_described() {
    let client = fixture().await.client;
    client.put(BOX, &[], "").await.refused(409, "ContainerAlreadyExists");
    let created = client.put("/new-1?restype=container", &[("x-ms-meta-owner", "me")], "").await.is(201);
    for (method, target) in [
        (Method::GET, "/new-1?restype=container"),
        (Method::HEAD, "/new-1?restype=container"),
        (Method::GET, "/new-1?restype=container&comp=metadata"),
    ] {
        let found = client.send(method, target, &[], "").await.is(200);
        assert_eq!((found.field("x-ms-meta-owner"), found.tag()), ("me", created.tag()));
        let lease = (found.field("x-ms-lease-state"), found.field("x-ms-lease-status"));
        assert_eq!(lease, ("available", "unlocked"));
    }
    let changed = client.put("/new-1?restype=container&comp=metadata", &[("x-ms-meta-a", "1")], "").await.is(200);
    assert_ne!(changed.tag(), created.tag());
    let found = client.get("/new-1?restype=container").await.is(200);
    assert_eq!((found.field("x-ms-meta-a"), found.tag()), ("1", changed.tag()));
    assert!(!found.headers.contains_key("x-ms-meta-owner"));
    client.get("/none?restype=container").await.refused(404, "ContainerNotFound");
    client.put("/none?restype=container&comp=metadata", &[], "").await.refused(404, "ContainerNotFound");
    client.delete("/none?restype=container", &[]).await.refused(404, "ContainerNotFound");
}

#[tokio::test]
async fn a_container_that_is_created_again_is_empty() {
    let client = fixture().await.client;
    client.upload("/box/a", "old", &[]).await.is(201);
    client.put("/box/b?comp=block&blockid=AA==", &[], "old").await.is(201);
    client.delete(BOX, &[]).await.is(202);
    client.get("/box/a").await.refused(404, "ContainerNotFound");
    client.put(BOX, &[], "").await.is(201);
    client.get("/box/a").await.refused(404, "BlobNotFound");
    client.get("/box/b?comp=blocklist&blocklisttype=all").await.refused(404, "BlobNotFound");
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    client.put("/box/b?comp=blocklist", &[], list).await.refused(400, "InvalidBlockList");
}

#[tokio::test]
async fn names_follow_azures_rules() {
    let client = fixture().await.client;
    let longest = "c".repeat(63);
    client.put(&format!("/{longest}?restype=container"), &[], "").await.is(201);
    let too_long = "c".repeat(64);
    for name in ["ab", "Abc", "a_b", "a.b", "-ab", "ab-", "a--b", "$root", too_long.as_str()] {
        client.put(&format!("/{name}?restype=container"), &[], "").await.refused(400, "InvalidResourceName");
    }
}

#[tokio::test]
async fn a_lease_protects_a_container_from_deletion_only() {
    let client = fixture().await.client;
    let (id, other) = (lease_id('1'), lease_id('2'));
    let before = client.get(BOX).await.is(200);
    let fields = [("x-ms-lease-duration", "15"), ("x-ms-proposed-lease-id", id.as_str())];
    let leased = client.lease(BOX, "acquire", &fields).await.is(201);
    assert_eq!((leased.field("x-ms-lease-id"), leased.tag()), (id.as_str(), before.tag()));
    let found = client.get(BOX).await.is(200);
    let lease = [found.field("x-ms-lease-state"), found.field("x-ms-lease-status"), found.field("x-ms-lease-duration")];
    assert_eq!(lease, ["leased", "locked", "fixed"]);
    client.upload("/box/a", "x", &[]).await.is(201);
    client.put("/box?restype=container&comp=metadata", &[("x-ms-meta-a", "1")], "").await.is(200);
    client.delete(BOX, &[]).await.refused(412, "LeaseIdMissing");
    client.delete(BOX, &[("x-ms-lease-id", &other)]).await.refused(412, "LeaseIdMismatchWithContainerOperation");
    let answer = client.send(Method::GET, BOX, &[("x-ms-lease-id", &other)], "").await;
    answer.refused(412, "LeaseIdMismatchWithContainerOperation");
    client.send(Method::GET, BOX, &[("x-ms-lease-id", &id)], "").await.is(200);
    client.delete(BOX, &[("x-ms-lease-id", &id)]).await.is(202);
    client.put(BOX, &[], "").await.is(201);
    let answer = client.delete(BOX, &[("x-ms-lease-id", &id)]).await;
    answer.refused(412, "LeaseNotPresentWithContainerOperation");
}
