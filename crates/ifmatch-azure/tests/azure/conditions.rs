//! Conditional fields by Azure's rules: every row of the table.

use std::time::Duration;

use http::Method;
use ifmatch_core::date::HttpDate;

use crate::support::{Answer, Client, Fixture, fixture, lease_id};

const LIST: &str = "<BlockList><Latest>AA==</Latest></BlockList>";

#[tokio::test]
async fn every_row_of_the_table_holds() {
    let fixture = fixture().await;
    let mut rows = 0;
    for line in include_str!("data/conditions.txt").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [operations, fields, status, code] = columns[..] else { panic!("not a row: {line}") };
        for operation in operations.split(' ') {
            check(&fixture, rows, operation, fields, (status, code)).await;
            rows += 1;
        }
    }
    assert!(rows > 250, "{rows} cases");
}

/// Each case has a container of its own.
async fn check(fixture: &Fixture, case: usize, operation: &str, fields: &str, (status, code): (&str, &str)) {
    let client = &fixture.client;
    let own = format!("/case{case}");
    client.put(&format!("{own}?restype=container"), &[], "").await.is(201);
    client.upload(&format!("{own}/there"), "first", &[]).await.is(201);
    for blob in ["there", "absent"] {
        client.put(&format!("{own}/{blob}?comp=block&blockid=AA=="), &[], "second").await.is(201);
    }
    // So that the date of the blob has come, and another one comes with the next write.
    fixture.clock.advance(Duration::from_secs(5));
    let (on, what) = operation.split_once('-').unwrap_or(("there", operation));
    let target = if on == "container" { format!("{own}?restype=container") } else { format!("{own}/{on}") };
    let before = state(client, &target).await;
    let fields = meaning(fields, &before);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let answer = send(client, what, &target, &fields).await;
    let case = format!("{operation} with {fields:?}");
    if status == "ok" {
        assert!(answer.status.is_success(), "{case}: {answer:?}");
        return;
    }
    assert_eq!((answer.status.as_str(), answer.code()), (status, code), "{case}");
    if status == "304" {
        assert_eq!(answer.tag(), before.tag(), "{case}");
    }
    let after = state(client, &target).await;
    assert_eq!(
        (after.status, after.headers.get("etag")),
        (before.status, before.headers.get("etag")),
        "{case}: it was changed"
    );
    assert_eq!(after.headers.get("x-ms-lease-state"), before.headers.get("x-ms-lease-state"), "{case}");
}

async fn state(client: &Client, target: &str) -> Answer {
    client.send(Method::HEAD, target, &[], "").await
}

/// The fields of a row; `before` is what the blob was.
fn meaning(text: &str, before: &Answer) -> Vec<(String, String)> {
    let tag = before.headers.get("etag").map_or("\"none\"", |tag| tag.to_str().expect("ASCII"));
    let modified = before
        .headers
        .get("last-modified")
        .map_or(1_600_000_000, |date| HttpDate::parse(date.as_bytes()).expect("a date").unix());
    let date = |seconds: i64| HttpDate::from_unix(modified + seconds).to_string();
    let value = |word: &str| match word {
        "current" => tag.to_owned(),
        "bare" => tag.trim_matches('"').to_owned(),
        "weak" => format!("W/{tag}"),
        "stale" => "\"stale\"".to_owned(),
        "before" => date(-3600),
        "same" => date(0),
        "after" => date(3600),
        other => other.to_owned(),
    };
    let field = |field: &str| {
        let (name, words) = field.split_once('=').expect("a name and a value");
        (name.to_owned(), words.split(',').map(value).collect::<Vec<_>>().join(", "))
    };
    text.split(' ').map(field).collect()
}

async fn send(client: &Client, what: &str, target: &str, fields: &[(&str, &str)]) -> Answer {
    let also = if target.contains('?') { '&' } else { '?' };
    let with = |parameters: &str| format!("{target}{also}{parameters}");
    let leasing = [("x-ms-lease-duration", "15"), ("x-ms-proposed-lease-id", &lease_id('1'))];
    match what {
        "get" => client.send(Method::GET, target, fields, "").await,
        "head" => client.send(Method::HEAD, target, fields, "").await,
        "put" => client.upload(target, "second", fields).await,
        "list" => client.put(&with("comp=blocklist"), fields, LIST).await,
        "metadata" => client.put(&with("comp=metadata"), fields, "").await,
        "properties" => client.put(&with("comp=properties"), fields, "").await,
        "delete" => client.delete(target, fields).await,
        "acquire" => client.lease(target, "acquire", &[&leasing, fields].concat()).await,
        "create" => client.put(target, fields, "").await,
        "block" => client.put(&with("comp=block&blockid=AQ=="), fields, "x").await,
        "blocks" => client.send(Method::GET, &with("comp=blocklist"), fields, "").await,
        _ => panic!("no such operation: {what}"),
    }
}
