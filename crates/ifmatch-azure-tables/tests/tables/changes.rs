//! What each kind of write leaves.

use http::Method;
use serde_json::{Value, json};

use crate::support::{ENTITY, fixture};

#[tokio::test]
async fn an_entity_is_inserted_once() {
    let client = fixture().await.client;
    let body = json!({ "PartitionKey": "p", "RowKey": "r", "a": 1 }).to_string();
    let inserted = client.send("POST", "/tab", &[], &body).await;
    assert_eq!(inserted.is(201).json()["a"], 1);
    assert_eq!(inserted.json()["odata.etag"], inserted.tag());
    assert_eq!(
        inserted.field("location"),
        format!("http://127.0.0.1:10002/photos{}", "/tab(PartitionKey='p',RowKey='r')")
    );
    assert_eq!(client.get(ENTITY).await.tag(), inserted.tag());
    client.send("POST", "/tab()", &[], &body).await.refused(409, "EntityAlreadyExists");
}

#[tokio::test]
async fn replacing_forgets_and_merging_keeps() {
    let client = fixture().await.client;
    for method in ["PATCH", "MERGE"] {
        client.write("PUT", None, json!({ "a": 1, "b": 2 })).await.is(204);
        let merged = client.write(method, Some("*"), json!({ "b": "3", "c": 4, "a": null })).await;
        assert_eq!(client.properties().await, json!({ "a": 1, "b": "3", "c": 4 }), "{method}");
        assert_eq!(client.get(ENTITY).await.tag(), merged.tag());
    }
    let fields = [("x-http-method", "MERGE"), ("if-match", "*")];
    client.send("POST", ENTITY, &fields, r#"{"d":5}"#).await.is(204);
    assert_eq!(client.properties().await, json!({ "a": 1, "b": "3", "c": 4, "d": 5 }));
    client.write("PUT", Some("*"), json!({ "e": 6 })).await.is(204);
    assert_eq!(client.properties().await, json!({ "e": 6 }));
}

#[tokio::test]
async fn an_upsert_creates_or_changes() {
    let client = fixture().await.client;
    client.write("MERGE", None, json!({ "a": 1 })).await.is(204);
    client.write("MERGE", None, json!({ "b": 2 })).await.is(204);
    assert_eq!(client.properties().await, json!({ "a": 1, "b": 2 }));
    client.write("PUT", None, json!({ "c": 3 })).await.is(204);
    assert_eq!(client.properties().await, json!({ "c": 3 }));
    client.delete("*").await.is(204);
    client.write("PUT", None, json!({ "d": 4 })).await.is(204);
    assert_eq!(client.properties().await, json!({ "d": 4 }));
}

#[tokio::test]
async fn what_is_not_there_is_not_changed() {
    let client = fixture().await.client;
    for guard in ["*", "W/\"datetime'2020-09-13T12%3A26%3A40.5000000Z'\""] {
        client.write("PUT", Some(guard), json!({})).await.refused(404, "ResourceNotFound");
        client.write("MERGE", Some(guard), json!({})).await.refused(404, "ResourceNotFound");
        client.delete(guard).await.refused(404, "ResourceNotFound");
    }
    client.get(ENTITY).await.refused(404, "ResourceNotFound");
    assert_eq!(client.properties().await, Value::Null);
}

#[tokio::test]
async fn the_address_names_the_entity_whatever_the_body_says() {
    let client = fixture().await.client;
    client.write("PUT", None, json!({ "PartitionKey": "x", "RowKey": "y", "Timestamp": "then", "a": 1 })).await.is(204);
    let read = client.get(ENTITY).await.json();
    assert_eq!((&read["PartitionKey"], &read["RowKey"]), (&json!("p"), &json!("r")));
    assert_eq!(read["Timestamp"], "2020-09-13T12:26:40.5000000Z");
}

#[tokio::test]
async fn keys_of_any_kind_name_entities() {
    let client = fixture().await.client;
    let keys = ["", " ", "!", "o'brien", "with space", "ünïcödé", "a+b=c&d", "100%", "(x,y)", "a,b')", "🦀", "."];
    for (number, key) in keys.iter().enumerate() {
        client.insert_as("p", key, json!({ "number": number })).await.is(204);
        client.insert_as(key, "q", json!({ "number": number })).await.is(204);
    }
    for (number, key) in keys.iter().enumerate() {
        let quoted = key.replace('\'', "''");
        let encoded = percent_encoding::utf8_percent_encode(&quoted, percent_encoding::NON_ALPHANUMERIC);
        for address in
            [format!("/tab(PartitionKey='p',RowKey='{encoded}')"), format!("/tab(PartitionKey='{encoded}',RowKey='q')")]
        {
            let read = client.get(&address).await;
            assert_eq!(read.json()["number"], number, "{key:?}");
            client.send("DELETE", &address, &[("if-match", &read.tag())], "").await.is(204);
        }
    }
    assert_eq!(client.get("/tab()").await.json()["value"], json!([]));
}

#[tokio::test]
async fn other_methods_are_refused() {
    let client = fixture().await.client;
    for (method, address) in [
        (Method::PUT, "/Tables"),
        (Method::POST, "/Tables('tab')"),
        (Method::DELETE, "/tab"),
        (Method::POST, ENTITY),
        (Method::OPTIONS, ENTITY),
    ] {
        client.send(method.as_str(), address, &[], "{}").await.refused(405, "UnsupportedHttpVerb");
    }
    let not_post = client.send("PUT", ENTITY, &[("x-http-method", "MERGE")], "{}").await;
    not_post.refused(400, "XMethodNotUsingPost");
    client.send("POST", ENTITY, &[("x-http-method", "GET")], "{}").await.refused(400, "XMethodIncorrectValue");
    let twice = [("x-http-method", "MERGE"), ("x-http-method", "PUT")];
    client.send("POST", ENTITY, &twice, "{}").await.refused(400, "XMethodIncorrectCount");
    assert_eq!(client.properties().await, Value::Null);
}
