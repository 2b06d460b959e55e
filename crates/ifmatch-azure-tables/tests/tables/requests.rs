//! Single requests: the memory that their bodies take, pages without entities, tags with the time of their write, and accounts.

use std::time::Duration;

use ifmatch_blob::documents::Documents;
use serde_json::json;

use crate::support::{Client, ENTITY, fixture};

#[tokio::test]
async fn a_body_needs_memory() {
    let mut client = fixture().await.client;
    let documents = Documents::new(4096);
    client.service = client.service.clone().documents(documents.clone());
    let table = json!({ "TableName": "other" }).to_string();
    let entity = json!({ "PartitionKey": "p", "RowKey": "r" }).to_string();
    let part = format!(
        "POST http://h/photos/tab HTTP/1.1\r\nContent-Type: application/json\r\n\r\n{}",
        json!({ "PartitionKey": "p", "RowKey": "s" })
    );
    let batch = format!(
        "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/http\r\n\r\n\
         {part}\r\n--c--\r\n--b--\r\n"
    );
    let kind = [("content-type", "multipart/mixed; boundary=b")];
    let requests = [
        ("POST", "/Tables", &[][..], &table, 201),
        ("POST", "/tab", &[], &entity, 201),
        ("PUT", ENTITY, &[], &entity, 204),
        ("MERGE", ENTITY, &[], &entity, 204),
        ("POST", "/$batch", &kind, &batch, 202),
    ];
    for (method, address, fields, body, status) in requests {
        let mut others = documents.begin(None);
        others.grow(4096).expect("all of it");
        let refused = client.send(method, address, fields, body).await;
        refused.refused(503, "ServerBusy");
        assert_eq!(refused.header("retry-after"), "1", "{method} {address}");
        drop(others);
        client
            .send(method, address, fields, body)
            .await
            .expect(status);
        assert_eq!(documents.taken(), 0, "{method} {address}");
    }
}

#[tokio::test]
async fn a_query_may_ask_for_no_entities() {
    let client = fixture().await.client;
    client.insert(json!({ "a": 1 })).await.expect(204);
    for address in [
        "/tab()?$top=0",
        "/Tables?$top=0",
        "/tab()?$filter=a%20eq%201&$top=0",
    ] {
        let page = client.get(address).await.expect(200);
        assert_eq!(page.json()["value"], json!([]), "{address}");
        assert!(
            !page
                .headers
                .keys()
                .any(|name| name.as_str().starts_with("x-ms-continuation")),
            "{address}"
        );
    }
    client
        .get("/none()?$top=0")
        .await
        .refused(404, "TableNotFound");
}

#[tokio::test]
async fn a_tag_is_the_time_of_the_write() {
    let fixture = fixture().await;
    let inserted = fixture.client.insert(json!({})).await;
    assert_eq!(
        inserted.tag(),
        "W/\"datetime'2020-09-13T12%3A26%3A40.5000000Z'\""
    );
    let read = fixture.client.get(ENTITY).await;
    assert_eq!(read.json()["Timestamp"], "2020-09-13T12:26:40.5000000Z");
    assert_eq!(
        (read.tag(), read.json()["odata.etag"].as_str()),
        (inserted.tag(), Some(inserted.tag().as_str()))
    );
    fixture.clock.advance(Duration::from_micros(1_500_001));
    let replaced = fixture.client.write("PUT", None, json!({})).await;
    assert_eq!(
        replaced.tag(),
        "W/\"datetime'2020-09-13T12%3A26%3A42.0000010Z'\""
    );
}

#[tokio::test]
async fn tags_are_unique_on_a_stopped_clock() {
    let client = fixture().await.client;
    let mut tags = std::collections::HashSet::new();
    for _ in 0..5 {
        assert!(tags.insert(client.insert(json!({})).await.tag()));
        assert!(tags.insert(client.write("PUT", None, json!({})).await.tag()));
        assert!(tags.insert(client.write("MERGE", Some("*"), json!({})).await.tag()));
        client.delete("*").await.expect(204);
    }
}

#[tokio::test]
async fn accounts_have_separate_tables() {
    let fixture = fixture().await;
    fixture.client.insert(json!({ "a": 1 })).await.expect(204);
    let reports = Client {
        account: "reports",
        ..fixture.client.clone()
    };
    assert_eq!(reports.get("/Tables").await.json()["value"], json!([]));
    reports.get(ENTITY).await.refused(404, "TableNotFound");
    reports.create("tab").await;
    reports.get(ENTITY).await.refused(404, "ResourceNotFound");
    reports
        .send("DELETE", "/Tables('tab')", &[], "")
        .await
        .expect(204);
    assert_eq!(fixture.client.properties().await, json!({ "a": 1 }));
}
