//! Requests that a client sends again because it lost the answer: the SDKs keep `x-ms-client-request-id` then.

use crate::support::{fixture, lease_id};

const REQUEST: (&str, &str) = ("x-ms-client-request-id", "a2fbd51e-4b2a-4b1c-8a94-6d4e5a7b9c01");

#[tokio::test]
async fn a_lost_answer_comes_again() {
    let client = fixture().await.client;
    let create = [REQUEST, ("if-none-match", "*")];
    let first = client.upload("/box/a", "x", &create).await.is(201);
    let again = client.upload("/box/a", "x", &create).await.is(201);
    assert_eq!(again.tag(), first.tag());
    client.upload("/box/a", "y", &create).await.refused(409, "BlobAlreadyExists");
    client.upload("/box/a", "x", &[create[1]]).await.refused(409, "BlobAlreadyExists");
    let fields = [REQUEST, ("if-match", &*first.tag()), ("x-ms-meta-a", "1")];
    let changed = client.put("/box/a?comp=metadata", &fields, "").await.is(200);
    assert_eq!(client.put("/box/a?comp=metadata", &fields, "").await.is(200).tag(), changed.tag());
    let delete = [REQUEST, ("if-match", &*changed.tag())];
    client.delete("/box/a", &delete).await.is(202);
    client.delete("/box/a", &delete).await.is(202);
    client.get("/box/a").await.refused(404, "BlobNotFound");
}

/// Some programs give all their requests one id. A write that no tag decides can rightly be sent twice.
#[tokio::test]
async fn a_program_with_one_id_for_all_its_writes_loses_none() {
    let client = fixture().await.client;
    for body in ["a", "b", "a"] {
        client.upload("/box/a", body, &[REQUEST]).await.is(201);
        assert_eq!(client.get("/box/a").await.text(), body);
    }
    for _ in 0..2 {
        client.delete("/box/a", &[REQUEST]).await.is(202);
        client.get("/box/a").await.refused(404, "BlobNotFound");
        client.upload("/box/a", "a", &[REQUEST]).await.is(201);
    }
    // Nor where a condition may be true more than once.
    for condition in [("if-match", "*"), ("if-none-match", "\"other\"")] {
        for body in ["a", "b", "a"] {
            client.upload("/box/a", body, &[REQUEST, condition]).await.is(201);
            assert_eq!(client.get("/box/a").await.text(), body, "{condition:?}");
        }
    }
}

/// What a program with one id for all created is its own only while it is there: else two would hold what one may create.
#[tokio::test]
async fn a_creation_is_not_answered_again_once_it_is_undone() {
    let fixture = fixture().await;
    let client = &fixture.client;
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    let create = [REQUEST, ("if-none-match", "*")];
    let later = || fixture.clock.advance(std::time::Duration::from_secs(1));
    for by_blocks in [false, true] {
        let send = async || {
            if !by_blocks {
                return client.upload("/box/lock", "x", &create).await;
            }
            client.put("/box/lock?comp=block&blockid=AA==", &[], "x").await.is(201);
            client.put("/box/lock?comp=blocklist", &create, list).await
        };
        let tag = send().await.is(201).tag();
        later();
        assert_eq!(send().await.is(201).tag(), tag);
        client.delete("/box/lock", &[REQUEST]).await.is(202);
        later();
        send().await.refused(409, "BlobAlreadyExists");
        client.get("/box/lock").await.refused(404, "BlobNotFound");
        let theirs = client.upload("/box/lock", "x", &create[1..]).await.is(201).tag();
        later();
        send().await.refused(409, "BlobAlreadyExists");
        assert_eq!(client.get("/box/lock").await.is(200).tag(), theirs);
        client.delete("/box/lock", &[]).await.is(202);
    }
}

#[tokio::test]
async fn a_lease_operation_is_answered_again_while_the_answer_stands() {
    let client = fixture().await.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    let acquire = [REQUEST, ("x-ms-lease-duration", "-1")];
    let id = client.lease("/box/a", "acquire", &acquire).await.is(201).field("x-ms-lease-id").to_owned();
    assert_eq!(client.lease("/box/a", "acquire", &acquire).await.is(201).field("x-ms-lease-id"), id);
    let release = [REQUEST, ("x-ms-lease-id", id.as_str())];
    client.lease("/box/a", "release", &release).await.is(200);
    client.lease("/box/a", "release", &release).await.is(200);
    let other = [("x-ms-lease-duration", "-1"), ("x-ms-proposed-lease-id", &*lease_id('1'))];
    client.lease("/box/a", "acquire", &other).await.is(201);
    client.lease("/box/a", "acquire", &acquire).await.refused(409, "LeaseAlreadyPresent");
}

/// The blocks are used up when the list is sent again; the blob is made of them.
#[tokio::test]
async fn a_block_list_is_answered_again() {
    let client = fixture().await.client;
    client.put("/box/a?comp=block&blockid=AA==", &[], "x").await.is(201);
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    let fields = [REQUEST, ("if-none-match", "*")];
    client.put("/box/a?comp=blocklist", &fields, list).await.is(201);
    assert_eq!(client.get("/box/a").await.is(200).body, "x");
    client.put("/box/a?comp=blocklist", &[REQUEST], list).await.is(201);
    assert_eq!(client.get("/box/a").await.is(200).body, "x");
}

/// With the condition that it was sent with the first time, which is false by now.
#[tokio::test]
async fn a_block_list_with_a_condition_is_answered_again() {
    let client = fixture().await.client;
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    client.put("/box/a?comp=block&blockid=AA==", &[], "x").await.is(201);
    let create = [REQUEST, ("if-none-match", "*")];
    let created = client.put("/box/a?comp=blocklist", &create, list).await.is(201).tag();
    assert_eq!(client.put("/box/a?comp=blocklist", &create, list).await.is(201).tag(), created);
    client.put("/box/a?comp=blocklist", &create[1..], list).await.refused(409, "BlobAlreadyExists");
    client.put("/box/a?comp=block&blockid=AQ==", &[], "y").await.is(201);
    let other = "<BlockList><Latest>AQ==</Latest></BlockList>";
    client.put("/box/a?comp=blocklist", &create, other).await.refused(409, "BlobAlreadyExists");
    let replace = [REQUEST, ("if-match", created.as_str())];
    let replaced = client.put("/box/a?comp=blocklist", &replace, other).await.is(201).tag();
    assert_eq!(client.put("/box/a?comp=blocklist", &replace, other).await.is(201).tag(), replaced);
    client.put("/box/a?comp=blocklist", &replace[1..], other).await.refused(412, "ConditionNotMet");
    client.put("/box/a?comp=blocklist", &replace, list).await.refused(400, "InvalidBlockList");
    assert_eq!(client.get("/box/a").await.is(200).body, "y");
    assert_eq!(client.get("/box/a").await.is(200).tag(), replaced);
}
