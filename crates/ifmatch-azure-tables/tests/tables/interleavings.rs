//! A request is paused right before its write while another request runs.

use serde_json::{Value, json};

use crate::support::{Answer, ENTITY, changes_tables, fixture, opens, writes};

/// A request.
#[derive(Clone, Copy, Debug)]
enum Act {
    Insert,
    /// Merges into the entity.
    Merge(If),
    Replace(If),
    Delete(If),
    /// Deletes the entity and inserts it again.
    Renew,
    /// Deletes the table.
    DropTable,
    RenewTable,
}

#[derive(Clone, Copy, Debug)]
enum If {
    Free,
    Any,
    Tag,
}

async fn perform(client: &crate::support::Client, act: Act, tag: &str, name: &str) -> Answer {
    let condition = |condition| match condition {
        If::Free => None,
        If::Any => Some("*"),
        If::Tag => Some(tag),
    };
    match act {
        Act::Insert => client.insert(json!({ name: 1 })).await,
        Act::Merge(guard) => {
            client
                .write("MERGE", condition(guard), json!({ name: 1 }))
                .await
        }
        Act::Replace(guard) => {
            client
                .write("PUT", condition(guard), json!({ name: 1 }))
                .await
        }
        Act::Delete(guard) => {
            client
                .delete(condition(guard).expect("a deletion has a condition"))
                .await
        }
        Act::Renew => {
            client.delete("*").await.expect(204);
            client.insert(json!({ "old": 1 })).await
        }
        Act::DropTable => client.send("DELETE", "/Tables('tab')", &[], "").await,
        Act::RenewTable => {
            client
                .send("DELETE", "/Tables('tab')", &[], "")
                .await
                .expect(204);
            client.create("tab").await;
            client.insert(json!({ "young": 1 })).await
        }
    }
}

/// If an entity exists before, the first request, the other request in between, the response to the first, and the
/// properties at the end.
type Row = (bool, Act, Act, (u16, &'static str), Value);

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn a_request_continues_after_another() {
    let both = || json!({ "old": 1, "first": 1, "other": 1 });
    let first = || json!({ "first": 1 });
    let other = || json!({ "old": 1, "other": 1 });
    let old = || json!({ "old": 1 });
    let young = || json!({ "young": 1 });
    let rows: Vec<Row> = vec![
        (
            true,
            Act::Merge(If::Free),
            Act::Merge(If::Free),
            (204, ""),
            both(),
        ),
        (
            true,
            Act::Merge(If::Any),
            Act::Merge(If::Tag),
            (204, ""),
            both(),
        ),
        (
            true,
            Act::Merge(If::Tag),
            Act::Merge(If::Any),
            (412, "UpdateConditionNotSatisfied"),
            other(),
        ),
        (
            true,
            Act::Merge(If::Free),
            Act::Delete(If::Any),
            (204, ""),
            first(),
        ),
        (
            true,
            Act::Merge(If::Any),
            Act::Delete(If::Any),
            (404, "ResourceNotFound"),
            Value::Null,
        ),
        (
            true,
            Act::Merge(If::Tag),
            Act::Delete(If::Tag),
            (404, "ResourceNotFound"),
            Value::Null,
        ),
        (
            true,
            Act::Merge(If::Tag),
            Act::Renew,
            (412, "UpdateConditionNotSatisfied"),
            old(),
        ),
        (
            true,
            Act::Merge(If::Any),
            Act::Renew,
            (204, ""),
            json!({ "old": 1, "first": 1 }),
        ),
        (
            false,
            Act::Merge(If::Free),
            Act::Insert,
            (204, ""),
            json!({ "first": 1, "other": 1 }),
        ),
        (
            true,
            Act::Replace(If::Free),
            Act::Merge(If::Free),
            (204, ""),
            first(),
        ),
        (
            true,
            Act::Replace(If::Any),
            Act::Merge(If::Free),
            (204, ""),
            first(),
        ),
        (
            true,
            Act::Replace(If::Tag),
            Act::Merge(If::Free),
            (412, "UpdateConditionNotSatisfied"),
            other(),
        ),
        (
            true,
            Act::Replace(If::Any),
            Act::Delete(If::Tag),
            (404, "ResourceNotFound"),
            Value::Null,
        ),
        (
            true,
            Act::Replace(If::Tag),
            Act::Delete(If::Any),
            (404, "ResourceNotFound"),
            Value::Null,
        ),
        (
            true,
            Act::Replace(If::Tag),
            Act::Renew,
            (412, "UpdateConditionNotSatisfied"),
            old(),
        ),
        (
            true,
            Act::Replace(If::Free),
            Act::Delete(If::Any),
            (204, ""),
            first(),
        ),
        (
            true,
            Act::Delete(If::Any),
            Act::Merge(If::Free),
            (204, ""),
            Value::Null,
        ),
        (
            true,
            Act::Delete(If::Tag),
            Act::Merge(If::Free),
            (412, "UpdateConditionNotSatisfied"),
            other(),
        ),
        (
            true,
            Act::Delete(If::Tag),
            Act::Delete(If::Tag),
            (404, "ResourceNotFound"),
            Value::Null,
        ),
        (
            true,
            Act::Delete(If::Any),
            Act::Delete(If::Any),
            (404, "ResourceNotFound"),
            Value::Null,
        ),
        (
            true,
            Act::Delete(If::Tag),
            Act::Renew,
            (412, "UpdateConditionNotSatisfied"),
            old(),
        ),
        (
            false,
            Act::Insert,
            Act::Insert,
            (409, "EntityAlreadyExists"),
            json!({ "other": 1 }),
        ),
        (
            false,
            Act::Insert,
            Act::Merge(If::Free),
            (409, "EntityAlreadyExists"),
            json!({ "other": 1 }),
        ),
        // The same as for an insert before the deletion.
        (false, Act::Insert, Act::DropTable, (204, ""), Value::Null),
        (false, Act::Insert, Act::RenewTable, (204, ""), young()),
        (
            true,
            Act::Merge(If::Free),
            Act::RenewTable,
            (204, ""),
            young(),
        ),
        (
            true,
            Act::Replace(If::Tag),
            Act::RenewTable,
            (204, ""),
            young(),
        ),
        (
            true,
            Act::Delete(If::Any),
            Act::RenewTable,
            (204, ""),
            young(),
        ),
    ];
    let fixture = fixture().await;
    for (there, first, other, (status, code), end) in rows {
        let case = format!("{first:?}, {other:?} in between");
        fixture
            .client
            .send("DELETE", "/Tables('tab')", &[], "")
            .await;
        fixture.client.create("tab").await;
        let tag = if there {
            fixture.client.insert(json!({ "old": 1 })).await.tag()
        } else {
            String::new()
        };
        let held = tag.clone();
        let interrupted = fixture.interrupted(writes, 0..1, move |client| {
            let tag = held.clone();
            async move {
                perform(&client, other, &tag, "other").await.expect(204);
            }
        });
        let answer = perform(&interrupted, first, &tag, "first").await;
        assert_eq!(answer.status.as_u16(), status, "{case}: {answer:?}");
        assert!(
            code.is_empty() || answer.error().1 == code,
            "{case}: {answer:?}"
        );
        assert_eq!(fixture.client.properties().await, end, "{case}");
        if let (204, Some(tag), false) = (
            status,
            answer.headers.get("etag"),
            matches!(other, Act::DropTable | Act::RenewTable),
        ) {
            assert_eq!(
                tag,
                fixture.client.get(ENTITY).await.header("etag"),
                "{case}"
            );
        }
    }
}

#[tokio::test]
async fn one_of_two_table_creations_succeeds() {
    let fixture = fixture().await;
    let interrupted = fixture.interrupted(changes_tables, 0..1, |client| async move {
        client.create("Other").await;
    });
    let late = interrupted
        .send("POST", "/Tables", &[], r#"{"TableName":"other"}"#)
        .await;
    late.refused(409, "TableAlreadyExists");
    assert_eq!(
        fixture.client.get("/Tables('OTHER')").await.json()["TableName"],
        "Other"
    );
}

#[tokio::test]
async fn a_query_of_a_table_deleted_meanwhile_fails() {
    let fixture = fixture().await;
    for row in ["a", "b", "c"] {
        fixture
            .client
            .insert_as("p", row, json!({}))
            .await
            .expect(204);
    }
    for renew in [false, true] {
        let interrupted = fixture.interrupted(opens, 0..1, move |client| async move {
            client
                .send("DELETE", "/Tables('tab')", &[], "")
                .await
                .expect(204);
            if renew {
                client.create("tab").await;
            }
            client.service.collect().await.expect("the store works");
        });
        interrupted
            .get("/tab()")
            .await
            .refused(404, "TableNotFound");
        if !renew {
            fixture.client.create("tab").await;
            fixture.client.insert(json!({})).await.expect(204);
        }
    }
}

#[tokio::test]
async fn a_query_omits_an_entity_deleted_meanwhile() {
    let fixture = fixture().await;
    fixture.client.insert(json!({})).await.expect(204);
    fixture
        .client
        .insert_as("p", "s", json!({}))
        .await
        .expect(204);
    let interrupted = fixture.interrupted(opens, 0..1, |client| async move {
        client.delete("*").await.expect(204);
    });
    let found = interrupted.get("/tab()").await.json();
    assert_eq!(found["value"].as_array().map(Vec::len), Some(1), "{found}");
}

/// Merges of one entity take turns, so none is refused, and none is lost.
#[tokio::test]
async fn merges_of_one_entity_take_turns() {
    let fixture = fixture().await;
    fixture.client.insert(json!({ "old": 1 })).await.expect(204);
    let merges = (0..200).map(|number| {
        let client = fixture.client.clone();
        tokio::spawn(async move {
            client
                .write("MERGE", None, json!({ format!("p{number}"): number }))
                .await
        })
    });
    for merge in merges.collect::<Vec<_>>() {
        merge.await.expect("no panic").expect(204);
    }
    let properties = fixture.client.properties().await;
    assert_eq!(
        properties.as_object().map(serde_json::Map::len),
        Some(201),
        "{properties}"
    );
}
