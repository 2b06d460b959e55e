//! Inserting, replacing, merging and deleting entities; creating and deleting tables.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::http::Reply;
use crate::races::winners::until_done;
use crate::races::{RACERS, race};
use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, JSON, Table};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("tables: keys of any kind", keys);
    suite.case("tables: twenty clients insert the same entity", inserters);
    suite.case("tables: no merge of another property is lost", mergers);
    suite.case("tables: a counter under If-Match", counter);
    suite.case("tables: insertions and deletions alternate", alternating);
    suite.case("tables: names differ by more than case", any_case);
    for method in ["PUT", "MERGE", "PATCH", "DELETE"] {
        suite.case(
            format!("tables: in a batch, only the current tag matches, {method}"),
            move |site| {
                batch(site, method);
            },
        );
    }
}

/// A batch changes an entity on its tag, and inserts another one: both or none.
fn batch(site: &Site, method: &str) {
    let mut table = Table::new(site);
    let first = table
        .insert("p", "r", &json!({ "a": 1 }))
        .is(204)
        .etag()
        .to_owned();
    let second = table
        .write("MERGE", Some(&first), &json!({ "a": 2 }))
        .is(204)
        .etag()
        .to_owned();
    let base = format!("http://h/{}{}", site.signer.account(), table.path);
    let mut send = |tag: &str| {
        let part = |line: &str, body: &str| {
            let kinds = "Content-Type: application/json\r\nPrefer: return-no-content\r\n";
            format!("--c\r\nContent-Type: application/http\r\n\r\n{line}{kinds}\r\n{body}\r\n")
        };
        let change = format!("{method} {base}{ENTITY} HTTP/1.1\r\nIf-Match: {tag}\r\n");
        let parts = part(&change, if method == "DELETE" { "" } else { r#"{"a":3}"# })
            + &part(
                &format!("POST {base} HTTP/1.1\r\n"),
                r#"{"PartitionKey":"p","RowKey":"s"}"#,
            );
        let body = format!(
            "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{parts}--c--\r\n--b--\r\n"
        );
        let fields = [("content-type", "multipart/mixed; boundary=b"), JSON[1]];
        let reply = table
            .http
            .send("POST", "/$batch", &fields, body)
            .is(202)
            .text()
            .to_owned();
        let other = table
            .send("GET", "(PartitionKey='p',RowKey='s')", &[], "")
            .status;
        (reply, table.properties(), other.as_u16())
    };
    let (refused, properties, other) = send(&first);
    assert!(
        refused.contains("HTTP/1.1 412") && refused.contains("UpdateConditionNotSatisfied"),
        "{refused}"
    );
    assert_eq!((properties, other), (json!({ "a": 2 }), 404));
    let (done, properties, other) = send(&second);
    let expected = if method == "DELETE" {
        Value::Null
    } else {
        json!({ "a": 3 })
    };
    assert_eq!((properties, other), (expected, 200), "{done}");
}

fn any_case(site: &Site) {
    let (mut http, name) = (site.tables(), format!("{}Orders", site.name()));
    let created = http
        .send(
            "POST",
            "/Tables",
            &JSON,
            json!({ "TableName": name }).to_string(),
        )
        .is(201);
    assert_eq!(created.json(), json!({ "TableName": name }));
    for name in [name.to_lowercase(), name.to_uppercase()] {
        let again = http.send(
            "POST",
            "/Tables",
            &JSON,
            json!({ "TableName": name }).to_string(),
        );
        again.refused(409, "TableAlreadyExists");
    }
    let found = http
        .send(
            "GET",
            &format!("/Tables('{}')", name.to_uppercase()),
            &JSON,
            "",
        )
        .is(200)
        .json();
    assert_eq!(found["TableName"], name);
    let quiet = [&JSON[..], &[("prefer", "return-no-content")]].concat();
    let created = http
        .send(
            "POST",
            "/Tables",
            &quiet,
            json!({ "TableName": format!("{name}2") }).to_string(),
        )
        .is(204);
    assert_eq!(created.header("preference-applied"), "return-no-content");
}

/// Every deletion but the last is followed by an insertion.
fn alternating(site: &Site) {
    let done = |reply: Reply| {
        if !matches!(reply.status.as_u16(), 204 | 404) && !reply.changed_nothing() {
            reply.fail("a change, or a rejection");
        }
        reply.status == 204
    };
    let path = Table::new(site).path;
    let run = |_| {
        let mut table = Table::at(site, &path);
        let mut balance = 0;
        for _ in 0..10 {
            balance += i32::from(done(table.insert("p", "r", &json!({}))));
            let read = table.send("GET", ENTITY, &[], "");
            let tag = if read.status == 200 { read.etag() } else { "*" };
            balance -= i32::from(done(table.delete(tag)));
        }
        balance
    };
    let left: i32 = race(6, run).into_iter().sum();
    assert_eq!(
        left,
        i32::from(Table::at(site, &path).properties() != Value::Null)
    );
}

fn keys(site: &Site) {
    let mut table = Table::new(site);
    let keys = [
        "",
        "%20",
        "!",
        "o''brien",
        "with%20space",
        "%C3%BC",
        "a%2Bb=c%26d",
        "100%25",
        "(x,y)",
        "%F0%9F%A6%80",
        ".",
    ];
    for (number, key) in keys.iter().enumerate() {
        let address = format!("(PartitionKey='p',RowKey='{key}')");
        table
            .send(
                "PUT",
                &address,
                &[],
                json!({ "number": number }).to_string(),
            )
            .is(204);
    }
    for (number, key) in keys.iter().enumerate() {
        let address = format!("(PartitionKey='p',RowKey='{key}')");
        let read = table.send("GET", &address, &[], "").is(200);
        assert_eq!(read.json()["number"], number, "{key}");
        table
            .send("DELETE", &address, &[("if-match", read.etag())], "")
            .is(204);
        let as_partition = format!("(PartitionKey='{key}',RowKey='q')");
        table.send("PUT", &as_partition, &[], "{}").is(204);
        table.send("GET", &as_partition, &[], "").is(200);
        table
            .send("DELETE", &as_partition, &[("if-match", "*")], "")
            .is(204);
    }
    assert_eq!(
        table.send("GET", "()", &[], "").is(200).json()["value"],
        json!([])
    );
}

fn inserters(site: &Site) {
    let path = Table::new(site).path;
    let insert = |racer: usize| {
        let mut table = Table::at(site, &path);
        table
            .insert("p", "r", &json!({ "by": racer }))
            .status
            .as_u16()
    };
    let statuses = race(RACERS, insert);
    let winners: Vec<usize> = (0..RACERS)
        .filter(|racer| statuses[*racer] == 204)
        .collect();
    let [winner] = winners[..] else {
        panic!("{statuses:?}")
    };
    assert!(
        statuses.iter().all(|status| matches!(status, 204 | 409)),
        "{statuses:?}"
    );
    assert_eq!(Table::at(site, &path).properties(), json!({ "by": winner }));
}

fn mergers(site: &Site) {
    let path = Table::new(site).path;
    let merge = |racer: usize| {
        let mut table = Table::at(site, &path);
        for round in 0..5 {
            until_done(|| table.write("MERGE", None, &json!({ format!("p{racer}"): round })));
        }
    };
    race(10, merge);
    let expected: Value = (0..10)
        .map(|racer| (format!("p{racer}"), json!(4)))
        .collect();
    assert_eq!(Table::at(site, &path).properties(), expected);
}

fn counter(site: &Site) {
    let mut table = Table::new(site);
    table.write("PUT", None, &json!({ "sum": 0 })).is(204);
    let path = table.path;
    let count = |_| {
        let mut table = Table::at(site, &path);
        for _ in 0..10 {
            until_done(|| {
                let read = table.send("GET", ENTITY, &[], "").is(200);
                let next = read.json()["sum"].as_u64().expect("a number") + 1;
                table.write("MERGE", Some(read.etag()), &json!({ "sum": next }))
            });
        }
    };
    race(8, count);
    assert_eq!(Table::at(site, &path).properties(), json!({ "sum": 80 }));
}

pub(crate) fn add_conditions(suite: &mut Suite) {
    suite.case("tables: every write has its own tag", tags);
    for method in ["PUT", "MERGE", "PATCH", "DELETE"] {
        suite.case(
            format!("tables: only the current tag matches, {method}"),
            move |site| current(site, method),
        );
        suite.case(
            format!("tables: invalid conditions, {method}"),
            move |site| {
                invalid(site, method);
            },
        );
    }
}

fn tags(site: &Site) {
    let (mut table, mut tags) = (Table::new(site), HashSet::new());
    for _ in 0..4 {
        assert!(tags.insert(table.insert("p", "r", &json!({})).is(204).etag().to_owned()));
        assert!(
            tags.insert(
                table
                    .write("PUT", None, &json!({}))
                    .is(204)
                    .etag()
                    .to_owned()
            )
        );
        assert!(
            tags.insert(
                table
                    .write("MERGE", Some("*"), &json!({}))
                    .is(204)
                    .etag()
                    .to_owned()
            )
        );
        table.delete("*").is(204);
    }
}

fn current(site: &Site, method: &str) {
    let mut table = Table::new(site);
    let path = table.path.clone();
    let first = table
        .insert("p", "r", &json!({ "a": 1 }))
        .is(204)
        .etag()
        .to_owned();
    let second = table
        .write("MERGE", Some(&first), &json!({ "a": 2 }))
        .is(204)
        .etag()
        .to_owned();
    let others = [
        first.clone(),
        second[2..].to_owned(),
        second.replace("%3A", ":"),
        second.replace("%3A", "%3a"),
        "W/\"datetime''\"".to_owned(),
        "\"x\"".to_owned(),
    ];
    let (body, gone) = if method == "DELETE" {
        ("", 404)
    } else {
        ("{}", 412)
    };
    let mut send = |tag: &str| table.send(method, ENTITY, &[("if-match", tag)], body);
    for tag in &others {
        send(tag).refused(412, "UpdateConditionNotSatisfied");
    }
    assert_eq!(Table::at(site, &path).properties(), json!({ "a": 2 }));
    send(&second).is(204);
    send(&second).is(gone);
}

fn invalid(site: &Site, method: &str) {
    let mut table = Table::new(site);
    let tag = table
        .insert("p", "r", &json!({ "a": 1 }))
        .is(204)
        .etag()
        .to_owned();
    let body = if method == "DELETE" { "" } else { "{}" };
    for text in ["", "abc", "W/", "\"open", "*, \"x\""] {
        table
            .send(method, ENTITY, &[("if-match", text)], body)
            .refused(400, "InvalidInput");
    }
    let twice = [("if-match", tag.as_str()), ("if-match", "*")];
    table
        .send(method, ENTITY, &twice, body)
        .refused(400, "InvalidInput");
    for name in ["if-none-match", "if-modified-since", "if-unmodified-since"] {
        let fields = [("if-match", "*"), (name, "*")];
        table
            .send(method, ENTITY, &fields, body)
            .refused(400, "ConditionHeadersNotSupported");
    }
    let read = table.send("GET", ENTITY, &[], "").is(200);
    assert_eq!((read.etag(), &read.json()["a"]), (tag.as_str(), &json!(1)));
}
