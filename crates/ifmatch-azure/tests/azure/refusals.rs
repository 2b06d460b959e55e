//! What is refused: every row of the table, and nothing is changed by any.

use http::Method;

use crate::support::{Client, fixture};

#[tokio::test]
async fn every_row_of_the_table_is_refused_and_changes_nothing() {
    let fixture = fixture().await;
    let client = &fixture.client;
    client.upload("/box/a", "first", &[("x-ms-meta-a", "1")]).await.is(201);
    let before = state(client).await;
    let mut rows = 0;
    for line in include_str!("data/refusals.txt").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [request, fields, status, code] = columns[..] else { panic!("not a row: {line}") };
        let (method, target) = request.split_once(' ').expect("a method and a target");
        let method: Method = method.parse().expect("a method");
        let fields = fields.split_whitespace().map(|field| field.split_once('=').expect("a name and a value"));
        let fields: Vec<(&str, &str)> = fields.collect();
        let answer = client.send(method, target, &fields, "").await;
        assert_eq!((answer.status.as_str(), answer.code()), (status, code), "{line}");
        assert_eq!(state(client).await, before, "{line}");
        rows += 1;
    }
    assert!(rows > 70, "{rows} rows");
}

/// All that a client can see of the account.
async fn state(client: &Client) -> (String, String, String, String) {
    let blob = client.get("/box/a").await.is(200);
    let fields =
        ["etag", "last-modified", "content-type", "x-ms-lease-state", "x-ms-meta-a"].map(|name| blob.field(name));
    let container = client.get("/box?restype=container").await.is(200).tag();
    let containers = client.get("?comp=list").await.is(200).all("Name").join(" ");
    let listing = client.get("/box?restype=container&comp=list&include=metadata").await.is(200);
    (fields.join(" ") + blob.text(), container, containers, listing.text().to_owned())
}
