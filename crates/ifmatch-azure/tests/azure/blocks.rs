//! Blobs made of blocks.

use std::fmt::Write;

use http::Method;

use crate::support::{Answer, Client, fixture};

const ALL: &str = "/box/a?comp=blocklist&blocklisttype=all";

/// The id of a block, as it stands in a list.
fn id(number: u32) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(format!("{number:05}"))
}

async fn stage(client: &Client, number: u32, body: &str) {
    let id = id(number).replace('=', "%3D");
    client.put(&format!("/box/a?comp=block&blockid={id}"), &[], body.to_owned()).await.is(201);
}

fn list(blocks: &[(&str, u32)]) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<BlockList>".to_owned();
    for (from, number) in blocks {
        let _ = write!(text, "<{from}>{}</{from}>", id(*number));
    }
    text + "</BlockList>"
}

async fn commit(client: &Client, blocks: &[(&str, u32)]) -> Answer {
    client.put("/box/a?comp=blocklist", &[], list(blocks)).await
}

async fn text(client: &Client) -> String {
    client.get("/box/a").await.is(200).text().to_owned()
}

#[tokio::test]
async fn a_list_makes_a_blob_of_staged_blocks() {
    let client = fixture().await.client;
    for (number, body) in [(1, "one "), (2, "two "), (3, "three ")] {
        stage(&client, number, body).await;
    }
    client.get("/box/a").await.refused(404, "BlobNotFound");
    let staged = client.get(ALL).await.is(200);
    assert_eq!((staged.all("Name"), staged.all("Size")), (vec![&*id(1), &*id(2), &*id(3)], vec!["4", "4", "6"]));
    let fields = [("x-ms-blob-content-type", "text/plain"), ("content-type", "application/xml"), ("x-ms-meta-a", "1")];
    let order = list(&[("Latest", 3), ("Uncommitted", 1), ("Latest", 1)]);
    let written = client.put("/box/a?comp=blocklist", &fields, order).await.is(201);
    let read = client.get("/box/a").await.is(200);
    assert_eq!(
        (read.text(), read.field("content-type"), read.field("x-ms-meta-a")),
        ("three one one ", "text/plain", "1")
    );
    assert_eq!(read.tag(), written.tag());
    // What was not in the list is gone, too.
    let blocks = client.get(ALL).await.is(200);
    assert_eq!(blocks.all("Name"), [&*id(3), &*id(1), &*id(1)]);
    assert_eq!(blocks.all("UncommittedBlocks"), [""]);
    assert_eq!((blocks.field("x-ms-blob-content-length"), blocks.tag()), ("14", written.tag()));
}

#[tokio::test]
async fn committed_blocks_are_used_again() {
    let client = fixture().await.client;
    for (number, body) in [(1, "one "), (2, "two "), (3, "three ")] {
        stage(&client, number, body).await;
    }
    commit(&client, &[("Latest", 1), ("Latest", 2), ("Latest", 3)]).await.is(201);
    stage(&client, 2, "TWO ").await;
    commit(&client, &[("Committed", 3), ("Committed", 2), ("Uncommitted", 2), ("Latest", 2), ("Latest", 1)])
        .await
        .is(201);
    assert_eq!(text(&client).await, "three two TWO TWO one ");
    // A change of the metadata leaves the bytes, and the blocks they are made of.
    client.put("/box/a?comp=metadata", &[("x-ms-meta-a", "1")], "").await.is(200);
    commit(&client, &[("Committed", 1)]).await.is(201);
    assert_eq!(text(&client).await, "one ");
    commit(&client, &[]).await.is(201);
    assert_eq!(text(&client).await, "");
}

#[tokio::test]
async fn a_list_of_what_is_not_there_changes_nothing() {
    let client = fixture().await.client;
    commit(&client, &[("Latest", 1)]).await.refused(400, "InvalidBlockList");
    stage(&client, 1, "one").await;
    for list in [&[("Latest", 1), ("Latest", 2)][..], &[("Committed", 1)], &[("Uncommitted", 2)]] {
        commit(&client, list).await.refused(400, "InvalidBlockList");
    }
    client.get("/box/a").await.refused(404, "BlobNotFound");
    assert_eq!(client.get(ALL).await.all("Name"), [&*id(1)], "the staged block stays");
    commit(&client, &[("Latest", 1)]).await.is(201);
    commit(&client, &[("Uncommitted", 1)]).await.refused(400, "InvalidBlockList");
    assert_eq!(text(&client).await, "one");
}

/// Another write in between: what was committed before is not what the blob is made of.
#[tokio::test]
async fn a_blob_that_was_written_whole_has_no_blocks() {
    let client = fixture().await.client;
    stage(&client, 1, "one").await;
    commit(&client, &[("Latest", 1)]).await.is(201);
    stage(&client, 2, "two").await;
    client.upload("/box/a", "whole", &[]).await.is(201);
    assert!(client.get(ALL).await.is(200).all("Name").is_empty(), "nor what was staged");
    commit(&client, &[("Committed", 1)]).await.refused(400, "InvalidBlockList");
    commit(&client, &[("Latest", 2)]).await.refused(400, "InvalidBlockList");
    stage(&client, 3, "three").await;
    client.delete("/box/a", &[]).await.is(202);
    client.get(ALL).await.refused(404, "BlobNotFound");
    assert_eq!(client.get("/box?restype=container&comp=list").await.all("Name"), [""; 0]);
}

#[tokio::test]
async fn ids_have_one_length_and_staging_again_replaces() {
    let client = fixture().await.client;
    stage(&client, 1, "old").await;
    client.put("/box/a?comp=block&blockid=AA==", &[], "x").await.refused(400, "InvalidBlobOrBlock");
    client.put("/box/b?comp=block&blockid=AA==", &[], "x").await.is(201);
    stage(&client, 1, "newer").await;
    let staged = client.get(ALL).await.is(200);
    assert_eq!((staged.all("Name"), staged.all("Size")), (vec![&*id(1)], vec!["5"]));
    commit(&client, &[("Latest", 1)]).await.is(201);
    assert_eq!(text(&client).await, "newer");
}

#[tokio::test]
async fn a_list_has_limits() {
    let client = fixture().await.client;
    stage(&client, 1, &"x".repeat(512 * 1024)).await;
    commit(&client, &[("Latest", 1), ("Latest", 1)]).await.is(201);
    commit(&client, &[("Latest", 1), ("Latest", 1), ("Latest", 1)]).await.refused(413, "RequestBodyTooLarge");
    let many: Vec<(&str, u32)> = vec![("Latest", 1); 50_001];
    commit(&client, &many).await.refused(400, "BlockListTooLong");
    assert_eq!(client.send(Method::HEAD, "/box/a", &[], "").await.field("content-length"), "1048576");
}

/// Every reader of the document meets what others have fallen for.
#[tokio::test]
async fn documents_that_are_no_lists_are_refused() {
    let client = fixture().await.client;
    stage(&client, 1, "one").await;
    let block = format!("<Latest>{}</Latest>", id(1));
    let documents = [
        String::new(),
        id(1),
        block.clone(),
        format!("<BlockList>{block}"),
        format!("<BlockList>{block}</BlockList></BlockList>"),
        format!("<BlockList>{block}</BlockList><BlockList>{block}</BlockList>"),
        format!("<BlockList>{block}</Blocklist>"),
        format!("<Blocks>{block}</Blocks>"),
        format!("<BlockList><Latest><Latest>{}</Latest></Latest></BlockList>", id(1)),
        format!("<BlockList><Newest>{}</Newest></BlockList>", id(1)),
        format!("<BlockList a=\"b\">{block}</BlockList>"),
        format!("<BlockList>text{block}</BlockList>"),
        format!("<BlockList><Latest><![CDATA[{}]]></Latest></BlockList>", id(1)),
        format!("<!DOCTYPE b [<!ENTITY a \"{}\">]><BlockList><Latest>&a;</Latest></BlockList>", id(1)),
        format!("<!DOCTYPE b SYSTEM \"file:///etc/passwd\"><BlockList>{block}</BlockList>"),
        "<BlockList><Latest>&a;</Latest></BlockList>".to_owned(),
        format!("<?xml-stylesheet href=\"x\"?><BlockList>{block}</BlockList>"),
    ];
    for document in documents {
        let answer = client.put("/box/a?comp=blocklist", &[], document.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "InvalidXmlDocument"), "{document}");
    }
    let invalid = [&b"<BlockList><Latest>\xff</Latest></BlockList>"[..], b"\xff\xfe<\0B\0"];
    for document in invalid {
        client.put("/box/a?comp=blocklist", &[], document).await.refused(400, "InvalidXmlDocument");
    }
    for id in ["", "no base64!", &"A".repeat(88)] {
        let document = format!("<BlockList><Latest>{id}</Latest></BlockList>");
        client.put("/box/a?comp=blocklist", &[], document).await.refused(400, "InvalidBlockList");
    }
    client.get("/box/a").await.refused(404, "BlobNotFound");
    commit(&client, &[("Latest", 1)]).await.is(201);
}

/// Writers who stage and commit the same ids at once: each blob that is read is one writer's, whole, and its tag tells whose.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lists_that_race_make_whole_blobs() {
    let client = fixture().await.client;
    let writer = |writer: u32| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut committed = 0;
            for round in 0..10 {
                let numbers: Vec<u32> = (0..5).map(|number| writer * 100 + number).collect();
                for number in &numbers {
                    stage(&client, *number, &format!("{writer}:{round} ")).await;
                }
                let blocks: Vec<(&str, u32)> = numbers.iter().map(|number| ("Latest", *number)).collect();
                let answer = commit(&client, &blocks).await;
                match answer.status.as_u16() {
                    201 => committed += 1,
                    // Another list was faster, and discarded what was staged.
                    400 => assert_eq!(answer.code(), "InvalidBlockList"),
                    503 => assert_eq!(answer.code(), "ServerBusy"),
                    _ => panic!("{answer:?}"),
                }
                let read = client.get("/box/a").await;
                if read.status == 200 {
                    let parts: Vec<&str> = read.text().split_whitespace().collect();
                    assert_eq!(parts.len(), 5, "{parts:?}");
                    let whose = |part: &str| part.split(':').next().map(str::to_owned);
                    assert!(parts.iter().all(|part| whose(part) == whose(parts[0])), "{parts:?}");
                }
            }
            committed
        })
    };
    let mut committed = 0;
    for writer in (1..5).map(writer).collect::<Vec<_>>() {
        committed += writer.await.expect("no panic");
    }
    assert!(committed > 0);
}

/// A counter whose writers commit on the condition that the blob is still what they read: each commit counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conditional_lists_lose_no_update() {
    const ROUNDS: u32 = 5;
    let client = fixture().await.client;
    client.upload("/box/a", "0", &[]).await.is(201);
    let writer = |writer: u32| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                loop {
                    let read = client.get("/box/a").await.is(200);
                    let next = read.text().parse::<u32>().expect("a number") + 1;
                    stage(&client, writer, &next.to_string()).await;
                    let body = list(&[("Uncommitted", writer)]);
                    let answer = client.put("/box/a?comp=blocklist", &[("if-match", &read.tag())], body).await;
                    match answer.status.as_u16() {
                        201 => break,
                        400 | 412 | 503 => {}
                        _ => panic!("{answer:?}"),
                    }
                }
            }
        })
    };
    for writer in (1..5).map(writer).collect::<Vec<_>>() {
        writer.await.expect("no panic");
    }
    assert_eq!(text(&client).await, (4 * ROUNDS).to_string());
}
