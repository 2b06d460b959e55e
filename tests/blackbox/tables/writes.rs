//! What each kind of write leaves.

use serde_json::{Value, json};

use crate::races::race;
use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, JSON, Table, refused};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("tables: an entity is inserted once", inserted);
    suite.case("tables: replacing forgets and merging keeps", merged);
    suite.case("tables: an upsert creates or changes", upserted);
    suite.case("tables: what is not there is not changed", absent);
    suite.case("tables: a table is created, listed, deleted with its entities", life);
    suite.case("tables: keys of any kind", keys);
    suite.case("tables: values keep their types", types);
    suite.case("tables: twenty insert one entity", inserters);
    suite.case("tables: no merge of another property is lost", mergers);
    suite.case("tables: a counter under If-Match", counter);
    for (name, body, status, code) in BAD {
        suite.case(format!("tables: refused, {name}"), move |site| {
            let mut table = Table::new(site);
            refused(table.send("POST", "", &[], body), status, code);
            assert_eq!(table.send("GET", "()", &[], "").is(200).json()["value"], json!([]));
        });
    }
}

const BAD: [(&str, &str, u16, &str); 12] = [
    ("no body", "", 400, "InvalidInput"),
    ("a list", "[]", 400, "InvalidInput"),
    ("half an object", r#"{"PartitionKey":"p","RowKey":"r""#, 400, "InvalidInput"),
    ("no row key", r#"{"PartitionKey":"p"}"#, 400, "PropertiesNeedValue"),
    ("a key that is null", r#"{"PartitionKey":"p","RowKey":null}"#, 400, "PropertiesNeedValue"),
    ("a key that is a number", r#"{"PartitionKey":"p","RowKey":7}"#, 400, "InvalidInput"),
    ("a slash in a key", r#"{"PartitionKey":"p/q","RowKey":"r"}"#, 400, "InvalidInput"),
    ("a NUL in a key", r#"{"PartitionKey":"p","RowKey":"a\u0000b"}"#, 400, "InvalidInput"),
    ("a property's name", r#"{"PartitionKey":"p","RowKey":"r","a-b":1}"#, 400, "PropertyNameInvalid"),
    ("an object in a property", r#"{"PartitionKey":"p","RowKey":"r","a":{}}"#, 400, "InvalidInput"),
    (
        "a value that is not of its type",
        r#"{"PartitionKey":"p","RowKey":"r","a":"x","a@odata.type":"Edm.Int64"}"#,
        400,
        "InvalidInput",
    ),
    (
        "a type that is none",
        r#"{"PartitionKey":"p","RowKey":"r","a":"x","a@odata.type":"Edm.Geography"}"#,
        400,
        "InvalidInput",
    ),
];

fn inserted(site: &Site) {
    let mut table = Table::new(site);
    let body = json!({ "PartitionKey": "p", "RowKey": "r", "a": 1 }).to_string();
    let inserted = table.send("POST", "", &[], &body).is(201);
    assert_eq!(inserted.json()["a"], 1);
    assert!(inserted.etag().starts_with("W/\"datetime'"), "{}", inserted.etag());
    let full = [("accept", "application/json;odata=fullmetadata")];
    let read = table.http.send("GET", &format!("{}{ENTITY}", table.path), &full, "").is(200);
    assert_eq!((read.etag(), read.json()["odata.etag"].as_str()), (inserted.etag(), Some(inserted.etag())));
    refused(table.send("POST", "", &[], &body), 409, "EntityAlreadyExists");
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
    table.http.send("DELETE", &format!("/Tables('{name}')"), &JSON, "").is(204);
    refused(table.send("GET", ENTITY, &[], ""), 404, "TableNotFound");
    table.http.send("POST", "/Tables", &JSON, &create).is(201);
    assert_eq!(table.properties(), Value::Null, "a table that is created again is empty");
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
        assert_eq!(table.send("GET", &address, &[], "").is(200).json()["number"], number, "{key}");
    }
}

fn types(site: &Site) {
    let mut table = Table::new(site);
    let properties = json!({
        "text": "ü", "number": -7, "real": 0.5, "yes": true,
        "big": "1099511627776", "big@odata.type": "Edm.Int64",
        "when": "2026-11-21T12:00:00Z", "when@odata.type": "Edm.DateTime",
        "id": "a0000000-0000-4000-8000-00000000000a", "id@odata.type": "Edm.Guid",
        "bytes": "AP8=", "bytes@odata.type": "Edm.Binary",
    });
    table.insert("p", "r", &properties).is(204);
    let accept = [("accept", "application/json;odata=minimalmetadata")];
    let read = table.http.send("GET", &format!("{}{ENTITY}", table.path), &accept, "").is(200).json();
    for (name, value) in properties.as_object().expect("an object") {
        let text =
            |value: &Value| value.as_str().map_or(value.to_string(), |text| text.trim_end_matches('Z').to_owned());
        assert!(text(&read[name]).starts_with(&text(value)), "{name}: {read}");
    }
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
            table.write("MERGE", None, &json!({ format!("p{racer}"): round })).is(204);
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
            let mut pause = 2;
            loop {
                let read = table.send("GET", ENTITY, &[], "").is(200);
                let next = read.json()["sum"].as_u64().expect("a number") + 1;
                let reply = table.write("MERGE", Some(read.etag()), &json!({ "sum": next }));
                if reply.status == 204 {
                    break;
                }
                if !reply.changed_nothing() {
                    reply.fail("204, or a refusal");
                }
                crate::races::counter::backoff(&mut pause);
            }
        }
    };
    race(8, count);
    assert_eq!(Table { http: site.tables(), path }.properties(), json!({ "sum": 80 }));
}
