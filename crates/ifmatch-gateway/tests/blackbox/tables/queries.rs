//! Queries, and the forms of their answers.

use std::sync::{Arc, OnceLock};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::http::Reply;
use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, JSON, Table};

pub(crate) fn add(suite: &mut Suite) {
    let shared = Arc::new(OnceLock::new());
    for line in include_str!("../../data/blackbox/table-filters.txt").lines() {
        let Some((filter, finds)) = line.split_once(" => ").filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        let shared = Arc::clone(&shared);
        suite.case(format!("tables: filter {filter}"), move |site| {
            filtered(site, &shared, filter, finds);
        });
    }
    for size in [1, 4, 5, 1000] {
        suite.case(format!("tables: pages of {size}"), move |site| {
            pages(site, size);
        });
    }
    suite.case("tables: a page continues after changes", continued);
    suite.case("tables: pages of large entities are shorter", large);
    suite.case("tables: listed in pages", tables);
}

/// Creates a table with the five entities of `table-filters.txt` and returns its path.
fn filled(site: &Site) -> String {
    let mut table = Table::new(site);
    let rows = [
        (
            "even",
            "0",
            json!({ "n": 0, "name": "zero", "big": "0", "real": 0.0, "yes": true }),
        ),
        (
            "odd",
            "1",
            json!({ "n": 1, "name": "one", "big": "1099511627776", "real": 0.5, "yes": false }),
        ),
        (
            "even",
            "2",
            json!({ "n": 2, "name": "it's", "big": "-5", "real": 1e10, "when": "2026-11-21T12:00:00Z" }),
        ),
        (
            "odd",
            "3",
            json!({ "n": 3, "name": "", "id": "a0000000-0000-4000-8000-00000000000a", "bytes": "AP8=" }),
        ),
        (
            "even",
            "4",
            json!({ "n": "4", "name": "über", "when": "2027-01-01T00:00:00.5Z" }),
        ),
    ];
    let types = [
        ("big", "Int64"),
        ("when", "DateTime"),
        ("id", "Guid"),
        ("bytes", "Binary"),
    ];
    for (partition, row, mut properties) in rows {
        for (name, declared) in types {
            if properties.get(name).is_some() {
                properties[format!("{name}@odata.type")] = format!("Edm.{declared}").into();
            }
        }
        table.insert(partition, row, &properties).is(204);
    }
    table.path
}

fn filtered(site: &Site, shared: &OnceLock<String>, filter: &str, finds: &str) {
    let mut table = Table::at(site, shared.get_or_init(|| filled(site)));
    let encoded = utf8_percent_encode(filter, NON_ALPHANUMERIC);
    let reply = table.send("GET", &format!("()?$filter={encoded}"), &[], "");
    if finds == "refused" {
        return reply.refused(400, "InvalidInput");
    }
    let json = reply.is(200).json();
    let rows = json["value"].as_array().expect("a list").iter();
    let found: String = rows
        .map(|entity| entity["RowKey"].as_str().expect("a key"))
        .collect();
    assert_eq!(found, if finds == "nothing" { "" } else { finds });
}

/// Checks that pages are ordered by partition key, then by row key.
fn pages(site: &Site, most: usize) {
    let mut table = Table::new(site);
    let mut keys = Vec::new();
    for partition in ["", " ", "!", "a", "a b", "a!", "b"] {
        for row in ["1", "10", "2", "é"] {
            table
                .insert(partition, row, &json!({ "third": keys.len() % 3 == 0 }))
                .is(204);
            keys.push((partition.to_owned(), row.to_owned()));
        }
    }
    for (filter, step) in [("", 1), ("&$filter=third", 3)] {
        let expected: Vec<_> = keys.iter().step_by(step).cloned().collect();
        let pages = walk(&mut table, &format!("$top={most}{filter}"));
        assert!(pages.iter().all(|page| page.len() <= most));
        assert_eq!(pages.len(), expected.len().div_ceil(most));
        assert_eq!(pages.concat(), expected);
    }
}

/// Returns the keys in all pages of a query.
fn walk(table: &mut Table<'_>, query: &str) -> Vec<Vec<(String, String)>> {
    let (mut pages, mut next) = (Vec::new(), String::new());
    for _ in 0..1000 {
        let page = table
            .send("GET", &format!("()?{query}{next}"), &[], "")
            .is(200);
        let json = page.json();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let rows = json["value"].as_array().expect("a list").iter();
        pages.push(
            rows.map(|entity| (text(&entity["PartitionKey"]), text(&entity["RowKey"])))
                .collect(),
        );
        match continuation(&page) {
            Some(token) => next = token,
            None => return pages,
        }
    }
    panic!("the query does not end: {pages:?}");
}

/// Returns the parameters for the next page.
fn continuation(page: &Reply) -> Option<String> {
    let token = |name: &str| page.field(&format!("x-ms-continuation-{name}")).to_owned();
    let [partition, row] = ["nextpartitionkey", "nextrowkey"].map(token);
    (!partition.is_empty()).then(|| format!("&NextPartitionKey={partition}&NextRowKey={row}"))
}

/// The entity that the token names is deleted, and one is inserted before it.
fn continued(site: &Site) {
    let mut table = Table::new(site);
    for row in ["a", "b", "c", "d"] {
        table.insert("p", row, &json!({})).is(204);
    }
    let first = table.send("GET", "()?$top=2", &[], "").is(200);
    let next = continuation(&first).expect("another page");
    table
        .send(
            "DELETE",
            "(PartitionKey='p',RowKey='b')",
            &[("if-match", "*")],
            "",
        )
        .is(204);
    table.insert("p", "a1", &json!({})).is(204);
    let rest = table
        .send("GET", &format!("()?{next}"), &[], "")
        .is(200)
        .json();
    let rows = rest["value"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entity| entity["RowKey"].clone());
    assert_eq!(rows.collect::<Vec<_>>(), ["c", "d"]);
}

/// A page must fit into memory, regardless of the size of its entities.
fn large(site: &Site) {
    let mut table = Table::new(site);
    let large: Value = (0..15)
        .map(|number| (format!("p{number}"), Value::from("x".repeat(32 * 1024))))
        .collect();
    for row in 0..6 {
        table.insert("p", &row.to_string(), &large).is(204);
    }
    let pages = walk(&mut table, "$select=PartitionKey,RowKey");
    // Each takes nearly a mebibyte of UTF-16, which is all that a page has.
    assert_eq!((pages.len(), pages.concat().len()), (6, 6));
}

fn tables(site: &Site) {
    let (mut http, prefix) = (site.tables(), site.name());
    let names = ["Four", "one", "three", "Two"].map(|name| format!("{prefix}{name}"));
    for name in &names {
        http.send(
            "POST",
            "/Tables",
            &JSON,
            json!({ "TableName": name }).to_string(),
        )
        .is(201);
    }
    let (mut found, mut next) = (Vec::new(), String::new());
    for _ in 0..100 {
        let filter =
            format!("$filter=TableName%20ge%20'{prefix}A'%20and%20TableName%20lt%20'{prefix}z'");
        let page = http
            .send("GET", &format!("/Tables?$top=3&{filter}{next}"), &JSON, "")
            .is(200);
        let json = page.json();
        let rows = json["value"].as_array().expect("a list");
        assert!(rows.len() <= 3);
        found.extend(
            rows.iter()
                .map(|table| table["TableName"].as_str().expect("a name").to_owned()),
        );
        match page.field("x-ms-continuation-nexttablename") {
            "" => break,
            token => next = format!("&NextTableName={token}"),
        }
    }
    assert_eq!(found, names, "sorted without regard to case");
}

pub(crate) fn add_content(suite: &mut Suite) {
    suite.case("tables: metadata levels", levels);
    suite.case("tables: merges and listings keep types", kept);
    suite.case("tables: a selection keeps types", selected_content);
}

/// An entity with properties of every type.
fn typed() -> Value {
    json!({
        "text": "it's 🦀", "text@odata.type": "Edm.String",
        "whole": 42, "real": 2.5, "even": 5.0, "truth": true,
        "large": "1099511627776", "large@odata.type": "Edm.Int64",
        "bytes": "AP8=", "bytes@odata.type": "Edm.Binary",
        "id": "A0000000-0000-4000-8000-00000000000A", "id@odata.type": "Edm.Guid",
        "when": "2026-11-21T12:30:15.000000Z", "when@odata.type": "Edm.DateTime",
        "nan": "NaN", "nan@odata.type": "Edm.Double",
        "exact": 0.300_000_000_000_000_04, "tiny": 5e-324,
        "nothing": null,
    })
}

fn read(table: &mut Table<'_>, address: &str, accept: &str) -> Reply {
    let address = format!("{}{address}", table.path);
    table.http.send("GET", &address, &[("accept", accept)], "")
}

fn levels(site: &Site) {
    let mut table = Table::new(site);
    let tag = table.insert("p", "r", &typed()).is(204).etag().to_owned();
    let (account, name) = (
        site.signer.account(),
        table.path.trim_start_matches('/').to_owned(),
    );
    let values = json!({
        "PartitionKey": "p", "RowKey": "r",
        "text": "it's 🦀", "whole": 42, "real": 2.5, "even": 5.0, "truth": true, "large": "1099511627776",
        "bytes": "AP8=", "id": "a0000000-0000-4000-8000-00000000000a", "when": "2026-11-21T12:30:15Z", "nan": "NaN",
        "exact": 0.300_000_000_000_000_04, "tiny": 5e-324,
    });
    let minimal = json!({
        "odata.etag": tag, "large@odata.type": "Edm.Int64", "bytes@odata.type": "Edm.Binary",
        "id@odata.type": "Edm.Guid", "when@odata.type": "Edm.DateTime", "nan@odata.type": "Edm.Double",
    });
    let full = json!({
        "odata.type": format!("{account}.{name}"), "odata.editLink": format!("{name}{ENTITY}"),
        "Timestamp@odata.type": "Edm.DateTime",
    });
    let rows = [
        ("nometadata", vec![&values]),
        ("minimalmetadata", vec![&values, &minimal]),
        ("fullmetadata", vec![&values, &minimal, &full]),
    ];
    for (level, parts) in rows {
        let parts = parts
            .into_iter()
            .flat_map(|part| part.as_object().expect("an object").clone());
        let reply = read(
            &mut table,
            ENTITY,
            &format!("application/json;odata={level}"),
        )
        .is(200);
        assert!(
            reply
                .header("content-type")
                .starts_with(&format!("application/json;odata={level};"))
        );
        assert_eq!(reply.etag(), tag);
        let mut json = reply.json();
        let entity = json.as_object_mut().expect("an object");
        assert!(entity.remove("Timestamp").is_some());
        for (url, path, expected) in [
            (
                "odata.metadata",
                format!("/{account}/$metadata#{name}/@Element"),
                level != "nometadata",
            ),
            (
                "odata.id",
                format!("/{account}/{name}{ENTITY}"),
                level == "fullmetadata",
            ),
        ] {
            let value = entity.remove(url);
            assert_eq!(value.is_some(), expected, "{level} {url}");
            assert!(
                value
                    .is_none_or(|value| value.as_str().is_some_and(|value| value.ends_with(&path))),
                "{url}"
            );
        }
        assert_eq!(json, Value::Object(parts.collect()), "{level}");
    }
    let reply = read(&mut table, ENTITY, "*/*").is(200);
    assert!(
        reply.text().contains("\"even\":5.0,"),
        "doubles keep the point: {}",
        reply.text()
    );
    read(&mut table, ENTITY, "application/atom+xml").refused(415, "AtomFormatNotSupported");
    let by_parameter = format!("{ENTITY}?$format=application/json;odata=nometadata");
    let json = read(&mut table, &by_parameter, "application/atom+xml")
        .is(200)
        .json();
    assert_eq!(
        (json["whole"].clone(), json["odata.etag"].clone()),
        (json!(42), Value::Null)
    );
}

fn kept(site: &Site) {
    let mut table = Table::new(site);
    table.insert("p", "r", &typed()).is(204);
    let mut expected = table.properties();
    table.write("MERGE", None, &json!({ "whole": 43 })).is(204);
    expected["whole"] = 43.into();
    assert_eq!(table.properties(), expected);
    let mut one = read(&mut table, ENTITY, "application/json").is(200).json();
    one.as_object_mut()
        .expect("an object")
        .remove("odata.metadata");
    let listed = read(&mut table, "()", "application/json").is(200).json();
    assert_eq!(listed["value"], json!([one]));
}

fn selected_content(site: &Site) {
    let mut table = Table::new(site);
    table
        .insert(
            "p",
            "r",
            &json!({ "a": 1, "b": "2", "b@odata.type": "Edm.Int64" }),
        )
        .is(204);
    let one = table
        .send("GET", &format!("{ENTITY}?$select=b,RowKey,none"), &[], "")
        .is(200)
        .json();
    assert_eq!(one, json!({ "RowKey": "r", "b": "2" }));
    let minimal = read(
        &mut table,
        &format!("{ENTITY}?$select=b"),
        "application/json",
    )
    .is(200)
    .json();
    assert_eq!(
        (&minimal["b@odata.type"], &minimal["a"]),
        (&json!("Edm.Int64"), &Value::Null)
    );
    assert!(minimal["odata.etag"].is_string());
}
