//! Inserting, replacing, merging and deleting entities; creating and deleting tables.

use serde_json::{Value, json};

use crate::races::counter::until_done;
use crate::races::race;
use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, JSON, Table, refused};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("tables: an entity is inserted once", inserted);
    suite.case("tables: replacing removes other properties, merging keeps them", merged);
    suite.case("tables: an upsert inserts or changes", upserted);
    suite.case("tables: changing a missing entity", absent);
    suite.case("tables: created, listed, deleted with its entities", life);
    suite.case("tables: keys of any kind", keys);
    suite.case("tables: twenty clients insert the same entity", inserters);
    suite.case("tables: no merge of another property is lost", mergers);
    suite.case("tables: a counter under If-Match", counter);
    suite.case("tables: insertions and deletions alternate", alternating);
    suite.case("tables: the address names the entity, not the body", addressed);
    suite.case("tables: names differ by more than case", any_case);
}

fn inserted(site: &Site) {
    let mut table = Table::new(site);
    let body = json!({ "PartitionKey": "p", "RowKey": "r", "a": 1 }).to_string();
    let inserted = table.send("POST", "", &[], &body).is(201);
    assert_eq!(inserted.json()["a"], 1);
    assert!(inserted.etag().starts_with("W/\"datetime'"), "{}", inserted.etag());
    let full = [("accept", "application/json;odata=fullmetadata")];
    let read = table.http.send("GET", &format!("{}{ENTITY}", table.path), &full, "").is(200);
    assert_eq!((read.etag(), read.json()["odata.etag"].as_str()), (inserted.etag(), Some(inserted.etag())));
    let address = format!("/{}{}{ENTITY}", site.signer.account(), table.path);
    assert!(inserted.header("location").ends_with(&address), "{}", inserted.header("location"));
    refused(table.send("POST", "", &[], &body), 409, "EntityAlreadyExists");
    refused(table.send("POST", "()", &[], &body), 409, "EntityAlreadyExists");
    assert_eq!(table.insert("p", "s", &json!({})).is(204).body.len(), 0);
}

fn merged(site: &Site) {
    let mut table = Table::new(site);
    for method in ["PATCH", "MERGE"] {
        table.write("PUT", None, &json!({ "a": 1, "b": 2 })).is(204);
        let merged = table.write(method, Some("*"), &json!({ "b": "3", "c": 4, "a": null })).is(204);
        assert_eq!(table.properties(), json!({ "a": 1, "b": "3", "c": 4 }), "{method}");
        assert_eq!(table.send("GET", ENTITY, &[], "").etag(), merged.etag());
    }
    let fields = [("x-http-method", "MERGE"), ("if-match", "*")];
    table.send("POST", ENTITY, &fields, r#"{"d":5}"#).is(204);
    assert_eq!(table.properties(), json!({ "a": 1, "b": "3", "c": 4, "d": 5 }));
    table.write("PUT", Some("*"), &json!({ "e": 6 })).is(204);
    assert_eq!(table.properties(), json!({ "e": 6 }));
}

fn upserted(site: &Site) {
    let mut table = Table::new(site);
    table.write("MERGE", None, &json!({ "a": 1 })).is(204);
    table.write("PATCH", None, &json!({ "b": 2 })).is(204);
    assert_eq!(table.properties(), json!({ "a": 1, "b": 2 }));
    table.delete("*").is(204);
    table.write("PUT", None, &json!({ "d": 4 })).is(204);
    assert_eq!(table.properties(), json!({ "d": 4 }));
}

fn absent(site: &Site) {
    let mut table = Table::new(site);
    for guard in ["*", "W/\"datetime'2020-09-13T12%3A26%3A40.5000000Z'\""] {
        for method in ["PUT", "MERGE", "PATCH"] {
            refused(table.write(method, Some(guard), &json!({})), 404, "ResourceNotFound");
        }
        refused(table.delete(guard), 404, "ResourceNotFound");
    }
    assert_eq!(table.properties(), Value::Null);
}

fn life(site: &Site) {
    let mut table = Table::new(site);
    table.insert("p", "r", &json!({ "a": 1 })).is(204);
    let name = table.path.trim_start_matches('/').to_owned();
    let create = json!({ "TableName": name }).to_string();
    refused(table.http.send("POST", "/Tables", &JSON, &create), 409, "TableAlreadyExists");
    let filter = format!("/Tables?$filter=TableName%20eq%20'{name}'");
    let listed = table.http.send("GET", &filter, &JSON, "").is(200).json();
    assert_eq!(listed["value"][0]["TableName"], name);
    let tag = table.send("GET", ENTITY, &[], "").is(200).etag().to_owned();
    let address = format!("/Tables('{name}')");
    table.http.send("DELETE", &address, &JSON, "").is(204);
    refused(table.http.send("DELETE", &address, &JSON, ""), 404, "ResourceNotFound");
    refused(table.http.send("GET", &address, &JSON, ""), 404, "ResourceNotFound");
    for (method, address, body) in [
        ("GET", ENTITY, ""),
        ("GET", "()", ""),
        ("PUT", ENTITY, "{}"),
        ("POST", "", r#"{"PartitionKey":"","RowKey":""}"#),
    ] {
        refused(table.send(method, address, &[], body), 404, "TableNotFound");
    }
    refused(table.delete("*"), 404, "TableNotFound");
    table.http.send("POST", "/Tables", &JSON, &create).is(201);
    assert_eq!(table.properties(), Value::Null, "empty when created again");
    refused(table.write("MERGE", Some(&tag), &json!({})), 404, "ResourceNotFound");
    table.insert("p", "r", &json!({ "b": 2 })).is(204);
    assert_eq!(table.properties(), json!({ "b": 2 }));
}

fn any_case(site: &Site) {
    let (mut http, name) = (site.tables(), format!("{}Orders", site.name()));
    let created = http.send("POST", "/Tables", &JSON, json!({ "TableName": name }).to_string()).is(201);
    assert_eq!(created.json(), json!({ "TableName": name }));
    for name in [name.to_lowercase(), name.to_uppercase()] {
        let again = http.send("POST", "/Tables", &JSON, json!({ "TableName": name }).to_string());
        refused(again, 409, "TableAlreadyExists");
    }
    let found = http.send("GET", &format!("/Tables('{}')", name.to_uppercase()), &JSON, "").is(200).json();
    assert_eq!(found["TableName"], name);
    let quiet = [&JSON[..], &[("prefer", "return-no-content")]].concat();
    let created = http.send("POST", "/Tables", &quiet, json!({ "TableName": format!("{name}2") }).to_string()).is(204);
    assert_eq!(created.header("preference-applied"), "return-no-content");
}

fn addressed(site: &Site) {
    let mut table = Table::new(site);
    let body = json!({ "PartitionKey": "x", "RowKey": "y", "Timestamp": "then", "a": 1 });
    table.write("PUT", None, &body).is(204);
    let read = table.send("GET", ENTITY, &[], "").is(200).json();
    assert_eq!((&read["PartitionKey"], &read["RowKey"], &read["a"]), (&json!("p"), &json!("r"), &json!(1)));
    assert_ne!(read["Timestamp"], "then");
}

/// Every deletion but the last is followed by an insertion.
fn alternating(site: &Site) {
    let path = Table::new(site).path;
    let run = |_| {
        let mut table = Table { http: site.tables(), path: path.clone() };
        let mut balance = 0;
        for _ in 0..10 {
            balance += i32::from(table.insert("p", "r", &json!({})).status == 204);
            let read = table.send("GET", ENTITY, &[], "");
            let tag = if read.status == 200 { read.etag() } else { "*" };
            balance -= i32::from(table.delete(tag).status == 204);
        }
        balance
    };
    let left: i32 = race(6, run).into_iter().sum();
    assert_eq!(left, i32::from(Table { http: site.tables(), path }.properties() != Value::Null));
}

fn keys(site: &Site) {
    let mut table = Table::new(site);
    let keys =
        ["", "%20", "!", "o''brien", "with%20space", "%C3%BC", "a%2Bb=c%26d", "100%25", "(x,y)", "%F0%9F%A6%80", "."];
    for (number, key) in keys.iter().enumerate() {
        let address = format!("(PartitionKey='p',RowKey='{key}')");
        table.send("PUT", &address, &[], json!({ "number": number }).to_string()).is(204);
    }
    for (number, key) in keys.iter().enumerate() {
        let address = format!("(PartitionKey='p',RowKey='{key}')");
        let read = table.send("GET", &address, &[], "").is(200);
        assert_eq!(read.json()["number"], number, "{key}");
        table.send("DELETE", &address, &[("if-match", read.etag())], "").is(204);
        let as_partition = format!("(PartitionKey='{key}',RowKey='q')");
        table.send("PUT", &as_partition, &[], "{}").is(204);
        table.send("GET", &as_partition, &[], "").is(200);
        table.send("DELETE", &as_partition, &[("if-match", "*")], "").is(204);
    }
    assert_eq!(table.send("GET", "()", &[], "").is(200).json()["value"], json!([]));
}

fn inserters(site: &Site) {
    let path = Table::new(site).path;
    let insert = |racer: usize| {
        let mut table = Table { http: site.tables(), path: path.clone() };
        table.insert("p", "r", &json!({ "by": racer })).status.as_u16()
    };
    let statuses = race(20, insert);
    let winners: Vec<usize> = (0..20).filter(|racer| statuses[*racer] == 204).collect();
    let [winner] = winners[..] else { panic!("{statuses:?}") };
    assert!(statuses.iter().all(|status| matches!(status, 204 | 409)), "{statuses:?}");
    assert_eq!(Table { http: site.tables(), path }.properties(), json!({ "by": winner }));
}

fn mergers(site: &Site) {
    let path = Table::new(site).path;
    let merge = |racer: usize| {
        let mut table = Table { http: site.tables(), path: path.clone() };
        for round in 0..5 {
            until_done(|| table.write("MERGE", None, &json!({ format!("p{racer}"): round })));
        }
    };
    race(10, merge);
    let expected: Value = (0..10).map(|racer| (format!("p{racer}"), json!(4))).collect();
    assert_eq!(Table { http: site.tables(), path }.properties(), expected);
}

fn counter(site: &Site) {
    let mut table = Table::new(site);
    table.write("PUT", None, &json!({ "sum": 0 })).is(204);
    let path = table.path;
    let count = |_| {
        let mut table = Table { http: site.tables(), path: path.clone() };
        for _ in 0..10 {
            until_done(|| {
                let read = table.send("GET", ENTITY, &[], "").is(200);
                let next = read.json()["sum"].as_u64().expect("a number") + 1;
                table.write("MERGE", Some(read.etag()), &json!({ "sum": next }))
            });
        }
    };
    race(8, count);
    assert_eq!(Table { http: site.tables(), path }.properties(), json!({ "sum": 80 }));
}
