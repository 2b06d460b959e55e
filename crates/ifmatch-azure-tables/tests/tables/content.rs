//! Types, and what an answer says beside the values.

use serde_json::{Value, json};

use crate::support::{Answer, Client, ENTITY, fixture};

fn typed() -> Value {
    json!({
        "text": "it's 🦀", "text@odata.type": "Edm.String",
        "whole": 42, "real": 2.5, "even": 5.0, "truth": true,
        "large": "1099511627776", "large@odata.type": "Edm.Int64",
        "bytes": "AP8=", "bytes@odata.type": "Edm.Binary",
        "id": "A0000000-0000-4000-8000-00000000000A", "id@odata.type": "Edm.Guid",
        "when": "2026-11-21T12:30:15.000000Z", "when@odata.type": "Edm.DateTime",
        "nan": "NaN", "nan@odata.type": "Edm.Double",
        "exact": 0.300_000_000_000_000_04, "tiny": 5e-324,
        "nothing": null,
    })
}

async fn read(client: &Client, accept: &str) -> Answer {
    client.send("GET", ENTITY, &[("accept", accept)], "").await
}

#[tokio::test]
async fn an_answer_says_as_much_as_is_asked_for() {
    let client = fixture().await.client;
    let tag = client.insert(typed()).await.tag();
    let values = json!({
        "PartitionKey": "p", "RowKey": "r", "Timestamp": "2020-09-13T12:26:40.5000000Z",
        "text": "it's 🦀", "whole": 42, "real": 2.5, "even": 5.0, "truth": true, "large": "1099511627776",
        "bytes": "AP8=", "id": "a0000000-0000-4000-8000-00000000000a", "when": "2026-11-21T12:30:15Z", "nan": "NaN",
        "exact": 0.300_000_000_000_000_04, "tiny": 5e-324,
    });
    let types = json!({
        "large@odata.type": "Edm.Int64", "bytes@odata.type": "Edm.Binary", "id@odata.type": "Edm.Guid",
        "when@odata.type": "Edm.DateTime", "nan@odata.type": "Edm.Double",
    });
    let minimal = json!({
        "odata.metadata": "http://127.0.0.1:10002/photos/$metadata#tab/@Element", "odata.etag": tag,
    });
    let full = json!({
        "odata.type": "photos.tab", "odata.id": "http://127.0.0.1:10002/photos/tab(PartitionKey='p',RowKey='r')",
        "odata.editLink": "tab(PartitionKey='p',RowKey='r')", "Timestamp@odata.type": "Edm.DateTime",
    });
    let rows = [
        ("nometadata", vec![&values]),
        ("minimalmetadata", vec![&values, &types, &minimal]),
        ("fullmetadata", vec![&values, &types, &minimal, &full]),
    ];
    for (level, parts) in rows {
        let parts = parts.into_iter().flat_map(|part| part.as_object().expect("an object").clone());
        let read = read(&client, &format!("application/json;odata={level}")).await;
        assert_eq!(read.is(200).json(), Value::Object(parts.collect()), "{level}");
        assert!(read.field("content-type").starts_with(&format!("application/json;odata={level};")));
        assert_eq!(read.tag(), tag);
    }
    // A client tells an integer from a real number by the point.
    let text = String::from_utf8(read(&client, "*/*").await.body.to_vec()).expect("text");
    assert!(text.contains("\"even\":5.0,"), "{text}");
    read(&client, "application/atom+xml").await.refused(415, "AtomFormatNotSupported");
    let parameter = client.get(&format!("{ENTITY}?$format=application/json;odata=nometadata")).await.json();
    assert_eq!(parameter, values);
}

#[tokio::test]
async fn a_merge_and_a_listing_keep_types() {
    let client = fixture().await.client;
    client.insert(typed()).await.is(204);
    let before = client.properties().await;
    client.write("MERGE", None, json!({ "whole": 43 })).await.is(204);
    let mut after = before;
    after["whole"] = 43.into();
    assert_eq!(client.properties().await, after);
    let listed = client.get("/tab()").await.json();
    assert_eq!(listed["odata.metadata"], "http://127.0.0.1:10002/photos/$metadata#tab");
    let mut one = read(&client, "application/json").await.json();
    one.as_object_mut().expect("an object").remove("odata.metadata");
    assert_eq!(listed["value"], json!([one]));
}

#[tokio::test]
async fn only_what_is_selected_comes() {
    let client = fixture().await.client;
    client.insert(json!({ "a": 1, "b": "2", "b@odata.type": "Edm.Int64" })).await.is(204);
    let none = "$format=application/json;odata=nometadata";
    for address in [format!("{ENTITY}?$select=b,RowKey,none&{none}"), format!("/tab()?$select=RowKey,b&{none}")] {
        let json = client.get(&address).await.json();
        let entity = if json["value"].is_array() { json["value"][0].clone() } else { json };
        assert_eq!(entity, json!({ "RowKey": "r", "b": "2" }), "{address}");
    }
    let minimal = client.get(&format!("{ENTITY}?$select=b")).await.json();
    assert_eq!((&minimal["b@odata.type"], &minimal["a"]), (&json!("Edm.Int64"), &Value::Null));
    assert!(minimal["odata.etag"].is_string());
}

#[tokio::test]
async fn answers_name_version_and_request() {
    let client = fixture().await.client;
    let fields = [("x-ms-version", "2026-02-06"), ("x-ms-client-request-id", "8e03978e")];
    for address in ["/Tables", "/nowhere()"] {
        let answer = client.send("GET", address, &fields, "").await;
        assert_eq!((answer.field("x-ms-version"), answer.field("x-ms-client-request-id")), ("2026-02-06", "8e03978e"));
        assert_eq!(answer.field("cache-control"), "no-cache");
    }
}
