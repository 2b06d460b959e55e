//! Batches that stop at every step, forever or while others write and read.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use ifmatch_blob::BlobStore;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{ListQuery, Reading};
use ifmatch_blob::test_util::{Hooked, Step, Stop};
use serde_json::{Value, json};

use crate::support::{Answer, Client, Fixture, fixture};

/// Far longer than any step takes.
const LIMIT: Duration = Duration::from_mins(1);
/// Number of writes and deletions of a batch that nothing disturbs: three intents, its commit, the three entities, and its removal.
const WRITES: usize = 8;
/// Pause between two looks at a batch that goes on.
const PAUSE: Duration = Duration::from_millis(1);

/// Returns a client with requests that stop.
fn stopped(fixture: &Fixture, stop: &Stop) -> Client {
    Client::over(
        Hooked {
            inner: Arc::new(fixture.store.clone()),
            hook: stop.clone(),
        },
        &fixture.clock,
    )
}

/// Stops the write or deletion with this number.
fn at_write(number: usize) -> Stop {
    Stop::new(|step, _| matches!(step, Step::Put | Step::Delete), number)
}

/// Sends a batch that changes `a`, creates `b` and deletes `c`.
async fn batch(client: &Client, if_match: &str) -> Answer {
    let part = |method: &str, target: &str, if_match: Option<&str>, body: &str| {
        let guard = if_match.map_or(String::new(), |tag| format!("If-Match: {tag}\r\n"));
        format!(
            "--c\r\nContent-Type: application/http\r\n\r\n{method} http://h/photos/tab{target} HTTP/1.1\r\n\
             Content-Type: application/json\r\nPrefer: return-no-content\r\n{guard}\r\n{body}\r\n"
        )
    };
    let parts = [
        part(
            "PATCH",
            "(PartitionKey='p',RowKey='a')",
            Some(if_match),
            r#"{"v":2}"#,
        ),
        part(
            "POST",
            "",
            None,
            r#"{"PartitionKey":"p","RowKey":"b","v":2}"#,
        ),
        part("DELETE", "(PartitionKey='p',RowKey='c')", Some("*"), ""),
    ];
    let parts = parts.concat();
    let body = format!(
        "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{parts}--c--\r\n--b--\r\n"
    );
    client
        .send(
            "POST",
            "/$batch",
            &[("content-type", "multipart/mixed; boundary=b")],
            &body,
        )
        .await
}

/// Returns `v` and `other` of each entity of the partition, as a query finds them.
async fn query(client: &Client) -> Value {
    let fields = [("accept", "application/json;odata=nometadata")];
    let answer = client
        .send("GET", "/tab()?$filter=PartitionKey%20eq%20'p'", &fields, "")
        .await;
    let rows = answer.expect(200).json()["value"]
        .as_array()
        .expect("rows")
        .clone();
    let row = |row: &Value| {
        (
            row["RowKey"].as_str().expect("a key").to_owned(),
            json!([row["v"], row["other"]]),
        )
    };
    Value::Object(rows.iter().map(row).collect())
}

fn old() -> Value {
    json!({ "a": [1, null], "c": [1, null] })
}

fn new() -> Value {
    json!({ "a": [2, null], "b": [2, null] })
}

async fn prepared() -> (Fixture, String) {
    let fixture = fixture().await;
    let tag = fixture
        .client
        .insert_as("p", "a", json!({ "v": 1 }))
        .await
        .tag();
    fixture
        .client
        .insert_as("p", "c", json!({ "v": 1 }))
        .await
        .expect(204);
    (fixture, tag)
}

/// Checks that each entity read alone is as in the query.
async fn read_alone(client: &Client, expected: &Value) {
    for row in ["a", "b", "c"] {
        let answer = client
            .get(&format!("/tab(PartitionKey='p',RowKey='{row}')"))
            .await;
        match expected.get(row) {
            None => answer.refused(404, "ResourceNotFound"),
            Some(values) => assert_eq!(answer.expect(200).json()["v"], values[0], "{row}"),
        }
    }
}

/// Returns the record of the partition's batches, or null if there is none.
async fn record(fixture: &Fixture) -> Value {
    let container = ContainerName::internal("entities.photos").expect("valid");
    let query = ListQuery::first(100);
    let page = fixture
        .store
        .list(&container, &query)
        .await
        .expect("the store works")
        .expect("the container exists");
    let Some(entry) = page
        .items
        .into_iter()
        .find(|entry| entry.name.as_str().ends_with("/!.p"))
    else {
        return Value::Null;
    };
    let blob = BlobPath {
        container,
        name: entry.name,
    };
    let opened = fixture
        .store
        .open(&blob, Reading::WHOLE)
        .await
        .expect("the store works");
    let body = opened
        .expect("records are not deleted")
        .source
        .read(None)
        .await
        .expect("the store works");
    let bytes = body.collect().await.expect("the store works").to_bytes();
    serde_json::from_slice(&bytes).expect("a record is JSON")
}

/// The batch stays where it stopped, as if its process had ended.
#[tokio::test]
async fn a_batch_that_ends_at_any_step_took_effect_or_did_not() {
    let (mut unchanged, mut changed) = (0, 0);
    for at in 0.. {
        let (fixture, _) = prepared().await;
        let stop = at_write(at);
        let client = stopped(&fixture, &stop);
        let running = tokio::spawn(async move { batch(&client, "*").await });
        let is_stopped = tokio::select! {
            () = stop.reached() => true,
            () = async { while !running.is_finished() { tokio::task::yield_now().await; } } => false,
        };
        let before = query(&fixture.client).await;
        running.abort();
        if !is_stopped {
            assert_eq!(before, new());
            break;
        }
        let _ = running.await;
        let seen = query(&fixture.client).await;
        assert_eq!(seen, before, "step {at}");
        assert!(seen == old() || seen == new(), "step {at}: {seen}");
        read_alone(&fixture.client, &seen).await;
        let is_new = seen == new();
        (unchanged, changed) = (
            unchanged + usize::from(!is_new),
            changed + usize::from(is_new),
        );
        // Others go on, whatever is left behind.
        let merged = fixture
            .client
            .send(
                "MERGE",
                "/tab(PartitionKey='p',RowKey='a')",
                &[],
                r#"{"other":1}"#,
            )
            .await;
        merged.expect(204);
        assert_eq!(
            query(&fixture.client).await["a"],
            json!([if is_new { 2 } else { 1 }, 1]),
            "step {at}"
        );
        fixture
            .client
            .insert_as("p", "b", json!({ "v": 3 }))
            .await
            .expect(if is_new { 409 } else { 204 });
        fixture
            .client
            .insert_as("p", "c", json!({ "v": 3 }))
            .await
            .expect(if is_new { 204 } else { 409 });
        let deleted = fixture
            .client
            .send(
                "DELETE",
                "/tab(PartitionKey='p',RowKey='b')",
                &[("if-match", "*")],
                "",
            )
            .await;
        deleted.expect(204);
        let again = batch(&fixture.client, "*").await;
        assert!(
            String::from_utf8_lossy(&again.body)
                .matches("HTTP/1.1 204")
                .count()
                == 3,
            "step {at}: {again:?}"
        );
        assert_eq!(
            query(&fixture.client).await,
            json!({ "a": [2, 1], "b": [2, null] }),
            "step {at}"
        );
    }
    // Three intents and the record are written first. Four writes follow.
    assert_eq!((unchanged, changed), (4, 4));
}

/// The client disconnects before each step. Another write may then reject the batch, which starts over.
#[tokio::test]
async fn a_batch_whose_client_disconnects_is_carried_out_and_leaves_the_record() {
    for at in 0..WRITES {
        for is_alone in [true, false] {
            let (fixture, _) = prepared().await;
            let stop = at_write(at);
            let client = stopped(&fixture, &stop);
            let running = tokio::spawn(async move { batch(&client, "*").await });
            stop.reached().await;
            running.abort();
            assert!(
                running
                    .await
                    .expect_err("there is no answer")
                    .is_cancelled()
            );
            if !is_alone {
                let address = "/tab(PartitionKey='p',RowKey='a')";
                fixture
                    .client
                    .send("MERGE", address, &[], r#"{"other":1}"#)
                    .await
                    .expect(204);
            }
            stop.go_on();
            let other = if is_alone { Value::Null } else { json!(1) };
            let expected = json!({ "a": [2, other], "b": [2, null] });
            let is_over = async || {
                let Value::Object(record) = record(&fixture).await else {
                    return false;
                };
                query(&fixture.client).await == expected
                    && record["committed"] == json!([])
                    && record["rejected"] == json!([])
            };
            let waiting = async {
                while !is_over().await {
                    tokio::time::sleep(PAUSE).await;
                }
            };
            if tokio::time::timeout(LIMIT, waiting).await.is_err() {
                let (seen, record) = (query(&fixture.client).await, record(&fixture).await);
                panic!("step {at}: the batch is not over within a minute: {seen}, {record}");
            }
        }
    }
}

#[tokio::test]
async fn a_batch_and_another_write_take_effect_one_after_the_other() {
    for at in 0..WRITES {
        for is_guarded in [false, true] {
            let (fixture, tag) = prepared().await;
            let stop = at_write(at);
            let client = stopped(&fixture, &stop);
            let if_match = if is_guarded { tag } else { "*".to_owned() };
            let running = tokio::spawn(async move { batch(&client, &if_match).await });
            stop.reached().await;
            let merged = fixture
                .client
                .send(
                    "MERGE",
                    "/tab(PartitionKey='p',RowKey='a')",
                    &[],
                    r#"{"other":1}"#,
                )
                .await;
            merged.expect(204);
            stop.go_on();
            let answer = tokio::time::timeout(LIMIT, running)
                .await
                .expect("the batch ends within a minute");
            let answer = answer.expect("no panic");
            let text = String::from_utf8_lossy(answer.expect(202).body.as_ref()).into_owned();
            let seen = query(&fixture.client).await;
            if text.contains("UpdateConditionNotSatisfied") {
                assert!(is_guarded && text.contains("\"0:"), "step {at}: {text}");
                assert_eq!(seen, json!({ "a": [1, 1], "c": [1, null] }), "step {at}");
            } else {
                assert_eq!(text.matches("HTTP/1.1 204").count(), 3, "step {at}: {text}");
                assert_eq!(seen, json!({ "a": [2, 1], "b": [2, null] }), "step {at}");
            }
            read_alone(&fixture.client, &seen).await;
        }
    }
}

/// A write has seen the entity before the intent, and arrives while the batch isn't decided.
#[tokio::test]
async fn a_write_does_not_remove_the_intent_of_a_batch() {
    for (method, fields, expected) in [
        ("PUT", &[][..], json!({ "a": [2, 1], "b": [2, null] })),
        (
            "PUT",
            &[("if-match", "*")],
            json!({ "a": [2, 1], "b": [2, null] }),
        ),
        ("MERGE", &[], json!({ "a": [2, 1], "b": [2, null] })),
        ("DELETE", &[("if-match", "*")], json!({ "c": [1, null] })),
    ] {
        let (fixture, _) = prepared().await;
        let (late, undecided) = (at_write(0), at_write(3));
        let (writer, batcher) = (stopped(&fixture, &late), stopped(&fixture, &undecided));
        let writing = tokio::spawn(async move {
            writer
                .send(
                    method,
                    "/tab(PartitionKey='p',RowKey='a')",
                    fields,
                    r#"{"other":1}"#,
                )
                .await
        });
        late.reached().await;
        let running = tokio::spawn(async move { batch(&batcher, "*").await });
        undecided.reached().await;
        late.go_on();
        let written = tokio::time::timeout(LIMIT, writing)
            .await
            .expect("the write ends within a minute");
        written.expect("no panic").expect(204);
        undecided.go_on();
        let answer = tokio::time::timeout(LIMIT, running)
            .await
            .expect("the batch ends within a minute");
        answer.expect("no panic").expect(202);
        let seen = query(&fixture.client).await;
        assert_eq!(seen, expected, "{method} {fields:?}");
        read_alone(&fixture.client, &seen).await;
    }
}

/// The batch takes effect between two steps of a query.
#[tokio::test]
async fn a_query_of_a_partition_sees_all_of_a_batch_or_nothing() {
    for at in 0.. {
        let (fixture, _) = prepared().await;
        let stop = Stop::new(|step, _| step == Step::Open, at);
        let client = stopped(&fixture, &stop);
        let running = tokio::spawn(async move { query(&client).await });
        let is_stopped = tokio::select! {
            () = stop.reached() => true,
            () = async { while !running.is_finished() { tokio::task::yield_now().await; } } => false,
        };
        if !is_stopped {
            assert!(at > 4, "a query opens the record and the entities: {at}");
            break;
        }
        batch(&fixture.client, "*").await.expect(202);
        stop.go_on();
        let seen = tokio::time::timeout(LIMIT, running)
            .await
            .expect("the query ends within a minute")
            .expect("no panic");
        assert!(seen == old() || seen == new(), "step {at}: {seen}");
    }
}
