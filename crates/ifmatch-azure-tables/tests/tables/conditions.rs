//! Tags: the very text of the current version's, and no other.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use crate::support::{ENTITY, fixture};

#[tokio::test]
async fn a_tag_is_the_time_of_the_write() {
    let fixture = fixture().await;
    let inserted = fixture.client.insert(json!({})).await;
    assert_eq!(inserted.tag(), "W/\"datetime'2020-09-13T12%3A26%3A40.5000000Z'\"");
    let read = fixture.client.get(ENTITY).await;
    assert_eq!(read.json()["Timestamp"], "2020-09-13T12:26:40.5000000Z");
    assert_eq!((read.tag(), read.json()["odata.etag"].as_str()), (inserted.tag(), Some(inserted.tag().as_str())));
    fixture.clock.advance(Duration::from_micros(1_500_001));
    let replaced = fixture.client.write("PUT", None, json!({})).await;
    assert_eq!(replaced.tag(), "W/\"datetime'2020-09-13T12%3A26%3A42.0000010Z'\"");
}

/// The clock stands still, and the content is the same.
#[tokio::test]
async fn every_write_has_a_tag_of_its_own() {
    let client = fixture().await.client;
    let mut tags = HashSet::new();
    for _ in 0..5 {
        assert!(tags.insert(client.insert(json!({})).await.tag()));
        assert!(tags.insert(client.write("PUT", None, json!({})).await.tag()));
        assert!(tags.insert(client.write("MERGE", Some("*"), json!({})).await.tag()));
        client.delete("*").await.is(204);
    }
}

#[tokio::test]
async fn only_the_current_tag_serves() {
    let client = fixture().await.client;
    let first = client.insert(json!({ "a": 1 })).await.tag();
    let second = client.write("MERGE", Some(&first), json!({ "a": 2 })).await.tag();
    let others = [
        first.as_str(),
        &second[2..],
        &second.replace("%3A", ":"),
        &second.replace("%3A", "%3a"),
        &second.replace('0', "1"),
        "W/\"datetime''\"",
        "\"x\"",
    ];
    for tag in others {
        client.write("PUT", Some(tag), json!({})).await.refused(412, "UpdateConditionNotSatisfied");
        client.write("MERGE", Some(tag), json!({})).await.refused(412, "UpdateConditionNotSatisfied");
        client.delete(tag).await.refused(412, "UpdateConditionNotSatisfied");
    }
    assert_eq!(client.properties().await, json!({ "a": 2 }));
    assert_eq!(client.get(ENTITY).await.tag(), second);
    let third = client.write("PUT", Some(&second), json!({ "a": 3 })).await.tag();
    client.delete(&third).await.is(204);
}

#[tokio::test]
async fn a_condition_that_is_not_understood_changes_nothing() {
    let client = fixture().await.client;
    let tag = client.insert(json!({ "a": 1 })).await.tag();
    for text in ["", "abc", "W/", "\"open", "*, \"x\""] {
        client.write("PUT", Some(text), json!({})).await.refused(400, "InvalidInput");
        client.delete(text).await.refused(400, "InvalidInput");
    }
    let twice = [("if-match", tag.as_str()), ("if-match", "*")];
    client.send("PUT", ENTITY, &twice, "{}").await.refused(400, "InvalidInput");
    client.send("DELETE", ENTITY, &[], "").await.refused(400, "MissingRequiredHeader");
    for name in ["if-none-match", "if-modified-since", "if-unmodified-since"] {
        for method in ["PUT", "MERGE", "DELETE"] {
            let fields = [("if-match", "*"), (name, "*")];
            client.send(method, ENTITY, &fields, "{}").await.refused(400, "ConditionHeadersNotSupported");
        }
    }
    for (method, address) in [("POST", "/tab"), ("POST", "/Tables"), ("DELETE", "/Tables('tab')")] {
        client.send(method, address, &[("if-match", "*")], "{}").await.refused(400, "ConditionHeadersNotSupported");
    }
    assert_eq!((client.properties().await, client.get(ENTITY).await.tag()), (json!({ "a": 1 }), tag));
}
