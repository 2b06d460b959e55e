//! Creating, listing and deleting tables.

use serde_json::{Value, json};

use crate::support::{Client, ENTITY, fixture};

async fn names(client: &Client, query: &str) -> (Vec<String>, Option<String>) {
    let answer = client.get(&format!("/Tables{query}")).await;
    let listing = answer.is(200).json();
    let name = |table: &Value| table["TableName"].as_str().expect("a name").to_owned();
    let next =
        answer.headers.get("x-ms-continuation-nexttablename").map(|next| next.to_str().expect("ASCII").to_owned());
    (listing["value"].as_array().expect("a list").iter().map(name).collect(), next)
}

#[tokio::test]
async fn a_table_is_created_once_whatever_its_case() {
    let client = fixture().await.client;
    let created = client.send("POST", "/Tables", &[], r#"{"TableName":"Orders"}"#).await;
    assert_eq!(
        created.is(201).json(),
        json!({
            "odata.metadata": "http://127.0.0.1:10002/photos/$metadata#Tables/@Element", "TableName": "Orders",
        })
    );
    for name in ["Orders", "orders", "ORDERS"] {
        let again = client.send("POST", "/Tables", &[], &json!({ "TableName": name }).to_string()).await;
        again.refused(409, "TableAlreadyExists");
    }
    let quiet = client.send("POST", "/Tables", &[("prefer", "return-no-content")], r#"{"TableName":"quiet"}"#).await;
    assert_eq!(quiet.is(204).field("preference-applied"), "return-no-content");
    assert_eq!(names(&client, "").await, (vec!["Orders".into(), "quiet".into(), "tab".into()], None));
}

#[tokio::test]
async fn tables_come_in_pages_and_can_be_filtered() {
    let client = fixture().await.client;
    for name in ["one", "Two", "three", "four"] {
        client.create(name).await;
    }
    let (mut all, mut next) = names(&client, "?$top=2").await;
    let mut pages = 1;
    while let Some(token) = next {
        let (more, after) = names(&client, &format!("?$top=2&NextTableName={token}")).await;
        all.extend(more);
        next = after;
        pages += 1;
    }
    assert_eq!((all, pages), (["four", "one", "tab", "three", "Two"].map(String::from).to_vec(), 3));
    assert_eq!(names(&client, "?$filter=TableName%20eq%20'Two'").await.0, ["Two"]);
    assert_eq!(names(&client, "?$filter=TableName%20ge%20'tab'").await.0, ["tab", "three"]);
    assert_eq!(client.get("/Tables('TWO')").await.json()["TableName"], "Two");
}

#[tokio::test]
async fn a_deleted_table_is_gone_with_all_that_was_in_it() {
    let client = fixture().await.client;
    client.insert(json!({ "a": 1 })).await.is(204);
    let tag = client.get(ENTITY).await.tag();
    client.send("DELETE", "/Tables('tab')", &[], "").await.is(204);
    client.send("DELETE", "/Tables('tab')", &[], "").await.refused(404, "ResourceNotFound");
    client.get("/Tables('tab')").await.refused(404, "ResourceNotFound");
    client.get(ENTITY).await.refused(404, "TableNotFound");
    client.get("/tab()").await.refused(404, "TableNotFound");
    client.insert(json!({})).await.refused(404, "TableNotFound");
    client.write("PUT", None, json!({})).await.refused(404, "TableNotFound");
    client.delete("*").await.refused(404, "TableNotFound");

    client.create("TAB").await;
    assert_eq!(client.properties().await, Value::Null);
    assert_eq!(client.get("/tab()").await.json()["value"], json!([]));
    client.write("MERGE", Some(&tag), json!({})).await.refused(404, "ResourceNotFound");
    client.insert(json!({ "b": 2 })).await.is(204);
    assert_eq!(client.properties().await, json!({ "b": 2 }));
}
