//! Tags of entities, which are compared as text.

use std::collections::HashSet;

use serde_json::json;

use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, Table, refused};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("tables: every write has its own tag", tags);
    for method in ["PUT", "MERGE", "PATCH", "DELETE"] {
        suite.case(format!("tables: only the current tag matches, {method}"), move |site| current(site, method));
        suite.case(format!("tables: invalid conditions, {method}"), move |site| {
            invalid(site, method);
        });
    }
    suite.case("tables: conditions on inserts and tables", |site| {
        let mut table = Table::new(site);
        let name = table.path.trim_start_matches('/').to_owned();
        let any = [("if-match", "*")];
        refused(table.send("POST", "", &any, "{}"), 400, "ConditionHeadersNotSupported");
        refused(table.http.send("POST", "/Tables", &any, "{}"), 400, "ConditionHeadersNotSupported");
        let delete = table.http.send("DELETE", &format!("/Tables('{name}')"), &any, "");
        refused(delete, 400, "ConditionHeadersNotSupported");
        assert_eq!(table.send("GET", "()", &[], "").is(200).json()["value"], json!([]));
    });
    suite.case("tables: a deletion requires a tag", |site| {
        let mut table = Table::new(site);
        table.insert("p", "r", &json!({})).is(204);
        refused(table.send("DELETE", ENTITY, &[], ""), 400, "MissingRequiredHeader");
        table.delete("*").is(204);
        refused(table.delete("*"), 404, "ResourceNotFound");
    });
}

fn tags(site: &Site) {
    let (mut table, mut tags) = (Table::new(site), HashSet::new());
    for _ in 0..4 {
        assert!(tags.insert(table.insert("p", "r", &json!({})).is(204).etag().to_owned()));
        assert!(tags.insert(table.write("PUT", None, &json!({})).is(204).etag().to_owned()));
        assert!(tags.insert(table.write("MERGE", Some("*"), &json!({})).is(204).etag().to_owned()));
        table.delete("*").is(204);
    }
}

fn current(site: &Site, method: &str) {
    let mut table = Table::new(site);
    let first = table.insert("p", "r", &json!({ "a": 1 })).is(204).etag().to_owned();
    let second = table.write("MERGE", Some(&first), &json!({ "a": 2 })).is(204).etag().to_owned();
    let others = [
        first.clone(),
        second[2..].to_owned(),
        second.replace("%3A", ":"),
        second.replace("%3A", "%3a"),
        "W/\"datetime''\"".to_owned(),
        "\"x\"".to_owned(),
    ];
    for tag in &others {
        let reply = table.send(method, ENTITY, &[("if-match", tag)], if method == "DELETE" { "" } else { "{}" });
        refused(reply, 412, "UpdateConditionNotSatisfied");
    }
    assert_eq!(table.properties(), json!({ "a": 2 }));
    table.send(method, ENTITY, &[("if-match", &second)], if method == "DELETE" { "" } else { "{}" }).is(204);
    let again = table.send(method, ENTITY, &[("if-match", &second)], if method == "DELETE" { "" } else { "{}" });
    again.is(if method == "DELETE" { 404 } else { 412 });
}

fn invalid(site: &Site, method: &str) {
    let mut table = Table::new(site);
    let tag = table.insert("p", "r", &json!({ "a": 1 })).is(204).etag().to_owned();
    let body = if method == "DELETE" { "" } else { "{}" };
    for text in ["", "abc", "W/", "\"open", "*, \"x\""] {
        refused(table.send(method, ENTITY, &[("if-match", text)], body), 400, "InvalidInput");
    }
    let twice = [("if-match", tag.as_str()), ("if-match", "*")];
    refused(table.send(method, ENTITY, &twice, body), 400, "InvalidInput");
    for name in ["if-none-match", "if-modified-since", "if-unmodified-since"] {
        let fields = [("if-match", "*"), (name, "*")];
        refused(table.send(method, ENTITY, &fields, body), 400, "ConditionHeadersNotSupported");
    }
    let read = table.send("GET", ENTITY, &[], "").is(200);
    assert_eq!((read.etag(), &read.json()["a"]), (tag.as_str(), &json!(1)));
}
