//! What cannot be carried out: the documented code each time, and nothing changed.

use serde_json::{Value, json};

use crate::support::{ENTITY, fixture};

#[tokio::test]
async fn entities_that_cannot_be_are_refused() {
    let client = fixture().await.client;
    let keys = r#""PartitionKey":"p","RowKey":"r""#;
    let with = |properties: &str| format!("{{{keys},{properties}}}");
    let many = (0..253).map(|number| format!("\"p{number}\":1")).collect::<Vec<_>>().join(",");
    let large = "x".repeat(32 * 1024);
    let sixteen = (0..16).map(|number| format!("\"p{number}\":\"{large}\"")).collect::<Vec<_>>().join(",");
    let rows = [
        (String::new(), 400, "InvalidInput"),
        ("[]".to_owned(), 400, "InvalidInput"),
        (format!("{{{keys}"), 400, "InvalidInput"),
        ("[".repeat(100_000), 400, "InvalidInput"),
        (r#"{"PartitionKey":"p"}"#.to_owned(), 400, "PropertiesNeedValue"),
        (r#"{"PartitionKey":"p","RowKey":null}"#.to_owned(), 400, "PropertiesNeedValue"),
        (r#"{"PartitionKey":"p","RowKey":7}"#.to_owned(), 400, "InvalidInput"),
        (r#"{"PartitionKey":"p/q","RowKey":"r"}"#.to_owned(), 400, "InvalidInput"),
        (r#"{"PartitionKey":"p","RowKey":"a\u0000b"}"#.to_owned(), 400, "InvalidInput"),
        (json!({ "PartitionKey": "p", "RowKey": "k".repeat(513) }).to_string(), 400, "KeyValueTooLarge"),
        (with(r#""a-b":1"#), 400, "PropertyNameInvalid"),
        (with(&format!("\"{}\":1", "n".repeat(256))), 400, "PropertyNameTooLong"),
        (with(r#""a":{}"#), 400, "InvalidInput"),
        (with(r#""a":[1]"#), 400, "InvalidInput"),
        (with(r#""a":"x","a@odata.type":"Edm.Int64""#), 400, "InvalidInput"),
        (with(r#""a":"x","a@odata.type":"Edm.Geography""#), 400, "InvalidInput"),
        (with(r#""a":"x","a@odata.type":1"#), 400, "InvalidInput"),
        (with(&format!("\"a\":\"{large}x\"")), 400, "PropertyValueTooLarge"),
        (with(&many), 400, "TooManyProperties"),
        (with(&sixteen), 400, "EntityTooLarge"),
        (with(&format!("\"a\":\"{}\"", "x".repeat(4 * 1024 * 1024))), 413, "RequestBodyTooLarge"),
    ];
    for (body, status, code) in rows {
        let answer = client.send("POST", "/tab", &[], &body).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{body:.80}");
    }
    let atom = client.send("POST", "/tab", &[("content-type", "application/atom+xml")], "{}").await;
    atom.refused(415, "AtomFormatNotSupported");
    assert_eq!(client.get("/tab()").await.json()["value"], json!([]));
}

/// What a merge makes of an entity has the same limits.
#[tokio::test]
async fn a_merge_cannot_grow_an_entity_over_the_limit() {
    let client = fixture().await.client;
    let half = |from: usize| (from..from + 130).map(|number| (format!("p{number}"), json!(1))).collect::<Value>();
    client.insert(half(0)).await.is(204);
    let before = client.get(ENTITY).await.tag();
    client.write("MERGE", None, half(130)).await.refused(400, "TooManyProperties");
    assert_eq!(client.get(ENTITY).await.tag(), before);
    client.write("MERGE", None, half(50)).await.is(204);
}

#[tokio::test]
async fn tables_that_cannot_be_are_refused() {
    let client = fixture().await.client;
    let rows = [
        (json!({}), 400, "PropertiesNeedValue"),
        (json!({ "TableName": 1 }), 400, "InvalidInput"),
        (json!({ "TableName": "ab" }), 400, "OutOfRangeInput"),
        (json!({ "TableName": "a".repeat(64) }), 400, "OutOfRangeInput"),
        (json!({ "TableName": "1abc" }), 400, "InvalidResourceName"),
        (json!({ "TableName": "a-b-c" }), 400, "InvalidResourceName"),
        (json!({ "TableName": "../etc" }), 400, "InvalidResourceName"),
        (json!({ "TableName": "Tables" }), 400, "InvalidResourceName"),
    ];
    for (body, status, code) in rows {
        client.send("POST", "/Tables", &[], &body.to_string()).await.refused(status, code);
    }
    assert_eq!(client.get("/Tables").await.json()["value"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn addresses_that_name_nothing_are_refused() {
    let client = fixture().await.client;
    for (address, code) in [
        ("/tab/more", "InvalidUri"),
        ("/tab(PartitionKey='p'", "InvalidUri"),
        ("/tab(PartitionKey='p')", "InvalidInput"),
        ("/tab(PartitionKey='p',RowKey='%2F')", "InvalidInput"),
        ("/tab()?$filter=a%20eq", "InvalidInput"),
        ("/tab()?$top=0", "InvalidInput"),
        ("/tab()?NextPartitionKey=p", "InvalidQueryParameterValue"),
    ] {
        client.get(address).await.refused(400, code);
    }
}

#[tokio::test]
async fn what_is_not_there_yet_says_so() {
    let client = fixture().await.client;
    for (method, address) in [
        ("POST", "/$batch"),
        ("GET", "/?restype=service&comp=properties"),
        ("GET", "/?restype=service&comp=stats"),
        ("GET", "/tab?comp=acl"),
        ("PUT", "/tab?comp=acl"),
    ] {
        client.send(method, address, &[], "").await.refused(501, "NotImplemented");
    }
}
