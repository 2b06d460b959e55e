//! Lists of blocks that were committed before, or staged again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::{Answer, Client, fixture};

/// Stages a block with an id of one letter.
async fn stage(client: &Client, id: &str, bytes: &'static str) {
    client.put(&format!("/box/a?comp=block&blockid={}", STANDARD.encode(id)), &[], bytes).await.is(201);
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
    commit(&client, &[("Latest", "a"), ("Latest", "b")]).await.is(201);
    stage(&client, "a", "newer").await;
    for both in [["Committed", "Uncommitted"], ["Uncommitted", "Committed"], ["Committed", "Latest"]] {
        commit(&client, &[(both[0], "a"), (both[1], "a")]).await.refused(400, "InvalidBlockList");
    }
    assert_eq!(client.get("/box/a").await.is(200).text(), "oldrest", "a refused list changes nothing");
    commit(&client, &[("Committed", "b"), ("Latest", "a"), ("Uncommitted", "a"), ("Latest", "b")]).await.is(201);
    assert_eq!(client.get("/box/a").await.is(200).text(), "restnewernewerrest");
    commit(&client, &[("Committed", "a"), ("Committed", "b"), ("Latest", "a")]).await.is(201);
    assert_eq!(client.get("/box/a").await.is(200).text(), "newerrestnewer");
}
