//! Lists of blocks that were committed before, or staged again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::{Answer, Client, fixture};

/// Stages a block with an id of one letter.
async fn stage(client: &Client, id: &str, bytes: &'static str) {
    client.put(&format!("/box/a?comp=block&blockid={}", STANDARD.encode(id)), &[], bytes).await.expect(201);
}

/// Commits blocks, each of a list.
async fn commit(client: &Client, blocks: &[(&str, &str)]) -> Answer {
    let block = |(from, id): &(&str, &str)| format!("<{from}>{}</{from}>", STANDARD.encode(id));
    let list = format!("<BlockList>{}</BlockList>", blocks.iter().map(block).collect::<String>());
    client.put("/box/a?comp=blocklist", &[], list).await
}

/// If both blocks were committed under one id, the next list that names it would repeat the first of them in the place of
/// the second.
#[tokio::test]
async fn an_id_names_one_block_of_a_list() {
    let client = fixture().await.client;
    stage(&client, "a", "old").await;
    stage(&client, "b", "rest").await;
    commit(&client, &[("Latest", "a"), ("Latest", "b")]).await.expect(201);
    stage(&client, "a", "newer").await;
    for both in [["Committed", "Uncommitted"], ["Uncommitted", "Committed"], ["Committed", "Latest"]] {
        commit(&client, &[(both[0], "a"), (both[1], "a")]).await.refused(400, "InvalidBlockList");
    }
    assert_eq!(client.get("/box/a").await.expect(200).text(), "oldrest", "a refused list changes nothing");
    commit(&client, &[("Committed", "b"), ("Latest", "a"), ("Uncommitted", "a"), ("Latest", "b")]).await.expect(201);
    assert_eq!(client.get("/box/a").await.expect(200).text(), "restnewernewerrest");
    commit(&client, &[("Committed", "a"), ("Committed", "b"), ("Latest", "a")]).await.expect(201);
    assert_eq!(client.get("/box/a").await.expect(200).text(), "newerrestnewer");
}

/// A retry that gets the first response removes neither the list of the blob nor its blocks.
#[tokio::test]
async fn a_retry_keeps_the_blocks_of_the_blob() {
    let client = fixture().await.client;
    stage(&client, "a", "bytes").await;
    let fields = [("if-none-match", "*"), ("x-ms-client-request-id", "7")];
    for _ in 0..2 {
        let list = format!("<BlockList><Latest>{0}</Latest></BlockList>", STANDARD.encode("a"));
        client.put("/box/a?comp=blocklist", &fields, list).await.expect(201);
        stage(&client, "a", "bytes").await;
    }
    commit(&client, &[("Committed", "a"), ("Committed", "a")]).await.expect(201);
    assert_eq!(client.get("/box/a").await.expect(200).text(), "bytesbytes");
}

/// Two writers append a block to the list that both have seen: the second one finds the list of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_lists_find_the_committed_blocks() {
    let client = fixture().await.client;
    stage(&client, "a", "x").await;
    commit(&client, &[("Latest", "a")]).await.expect(201);
    for _ in 0..100 {
        let racers = [0, 1, 2].map(|_| {
            let client = client.clone();
            tokio::spawn(async move { commit(&client, &[("Committed", "a")]).await })
        });
        for racer in racers {
            let answer = racer.await.expect("no panic");
            assert!(matches!((answer.status.as_u16(), answer.code()), (201, _) | (503, "ServerBusy")), "{answer:?}");
        }
        let list = client.get("/box/a?comp=blocklist").await.expect(200);
        assert_eq!(list.all("Size"), ["1"]);
    }
}

/// The winner of a race discards the staged blocks of the loser, whose condition is false as well.
#[tokio::test]
async fn a_false_condition_is_reported_before_a_missing_block() {
    let client = fixture().await.client;
    let tag = client.upload("/box/a", "old", &[]).await.expect(201).header("etag").to_owned();
    client.upload("/box/a", "new", &[]).await.expect(201);
    for condition in [("if-match", tag.as_str()), ("if-none-match", "*")] {
        for fields in [&[condition][..], &[condition, ("x-ms-client-request-id", "7")]] {
            let list = "<BlockList><Uncommitted>AA==</Uncommitted></BlockList>";
            let answer = client.put("/box/a?comp=blocklist", fields, list).await;
            let expected = if condition.1 == "*" { (409, "BlobAlreadyExists") } else { (412, "ConditionNotMet") };
            answer.refused(expected.0, expected.1);
        }
    }
}
