//! Queries: what filters find, and pages.

use serde_json::{Value, json};

use crate::support::{Client, fixture};

/// Five entities, named by their row keys.
async fn filled(client: &Client) {
    let rows = [
        ("even", "0", json!({ "n": 0, "name": "zero", "big": "0", "real": 0.0, "yes": true })),
        ("odd", "1", json!({ "n": 1, "name": "one", "big": "1099511627776", "real": 0.5, "yes": false })),
        ("even", "2", json!({ "n": 2, "name": "it's", "big": "-5", "real": 1e10, "when": "2026-11-21T12:00:00Z" })),
        ("odd", "3", json!({ "n": 3, "name": "", "id": "a0000000-0000-4000-8000-00000000000a", "bytes": "AP8=" })),
        ("even", "4", json!({ "n": "4", "name": "über", "when": "2027-01-01T00:00:00.5Z" })),
    ];
    let types = [("big", "Int64"), ("when", "DateTime"), ("id", "Guid"), ("bytes", "Binary")];
    for (partition, row, mut properties) in rows {
        for (name, declared) in types {
            if properties.get(name).is_some() {
                properties[format!("{name}@odata.type")] = format!("Edm.{declared}").into();
            }
        }
        client.insert_as(partition, row, properties).await.is(204);
    }
}

async fn found(client: &Client, filter: &str) -> (u16, String) {
    let encoded = percent_encoding::utf8_percent_encode(filter, percent_encoding::NON_ALPHANUMERIC);
    let answer = client.get(&format!("/tab()?$filter={encoded}")).await;
    if answer.status != 200 {
        return (answer.status.as_u16(), answer.error().1);
    }
    let json = answer.json();
    let rows = json["value"].as_array().expect("a list").iter();
    (200, rows.map(|entity| entity["RowKey"].as_str().expect("a key")).collect())
}

#[tokio::test]
async fn filters_find_what_the_table_says() {
    let client = fixture().await.client;
    filled(&client).await;
    let table = include_str!("../data/filters.txt");
    let mut rows = 0;
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (filter, rest) = line.split_once(" => ").expect("a filter and what it finds");
        let expected = match rest {
            "refused" => (400, "InvalidInput".to_owned()),
            "nothing" => (200, String::new()),
            rows => (200, rows.to_owned()),
        };
        assert_eq!(found(&client, filter).await, expected, "{filter}");
        rows += 1;
    }
    assert!(rows > 60, "{rows} rows");
}

#[tokio::test]
async fn results_come_in_pages_in_the_order_of_the_keys() {
    let client = fixture().await.client;
    let keys: Vec<(String, String)> = ["", " ", "!", "a", "a b", "a!", "b"]
        .into_iter()
        .flat_map(|partition| ["", "1", "10", "2", "é"].map(|row| (partition.to_owned(), row.to_owned())))
        .collect();
    for (number, (partition, row)) in keys.iter().enumerate().rev() {
        client.insert_as(partition, row, json!({ "third": number % 3 == 0 })).await.is(204);
    }
    for (filter, keep) in [("", 1), ("&$filter=third", 3)] {
        let expected: Vec<_> =
            keys.iter().enumerate().filter(|(number, _)| number % keep == 0).map(|(_, key)| key.clone()).collect();
        for size in [1, 4, 5, 6, 12, 34, 35, 36, 1000] {
            let (found, pages) = all(&client, &format!("$top={size}{filter}")).await;
            assert_eq!(found, expected, "{size}");
            assert_eq!(pages, expected.len().div_ceil(size), "{size}");
        }
    }
}

/// All that a query finds, page by page, and how many pages there were.
async fn all(client: &Client, query: &str) -> (Vec<(String, String)>, usize) {
    let (mut found, mut pages, mut next) = (Vec::new(), 0, String::new());
    loop {
        let answer = client.get(&format!("/tab()?{query}{next}")).await;
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let json = answer.is(200).json();
        let rows = json["value"].as_array().expect("a list").iter();
        found.extend(rows.map(|entity| (text(&entity["PartitionKey"]), text(&entity["RowKey"]))));
        pages += 1;
        if !answer.headers.contains_key("x-ms-continuation-nextpartitionkey") {
            return (found, pages);
        }
        let (partition, row) =
            (answer.field("x-ms-continuation-nextpartitionkey"), answer.field("x-ms-continuation-nextrowkey"));
        next = format!("&NextPartitionKey={partition}&NextRowKey={row}");
    }
}

#[tokio::test]
async fn a_page_goes_on_where_the_one_before_ended_whatever_goes_meanwhile() {
    let client = fixture().await.client;
    for row in ["a", "b", "c", "d"] {
        client.insert_as("p", row, json!({})).await.is(204);
    }
    let first = client.get("/tab()?$top=2").await;
    let next = format!(
        "NextPartitionKey={}&NextRowKey={}",
        first.field("x-ms-continuation-nextpartitionkey"),
        first.field("x-ms-continuation-nextrowkey")
    );
    client.send("DELETE", "/tab(PartitionKey='p',RowKey='b')", &[("if-match", "*")], "").await.is(204);
    client.insert_as("p", "a1", json!({})).await.is(204);
    let rest = client.get(&format!("/tab()?{next}")).await.json();
    let rows: Vec<_> =
        rest["value"].as_array().expect("a list").iter().map(|entity| entity["RowKey"].clone()).collect();
    assert_eq!(rows, ["c", "d"]);
}

/// An answer must fit into memory, however large the entities are.
#[tokio::test]
async fn pages_of_large_entities_are_shorter() {
    let client = fixture().await.client;
    let large: Value = (0..15).map(|number| (format!("p{number}"), Value::from("x".repeat(32 * 1024)))).collect();
    for row in 0..6 {
        client.insert_as("p", &row.to_string(), large.clone()).await.is(204);
    }
    let (found, pages) = all(&client, "$select=PartitionKey,RowKey").await;
    assert_eq!((found.len(), pages), (6, 2));
}
