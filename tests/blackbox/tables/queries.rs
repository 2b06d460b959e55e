//! Queries: the filters that the table service's own tests read, partitions, and pages.

use std::sync::{Arc, OnceLock};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{Table, refused};

pub(crate) fn add(suite: &mut Suite) {
    let shared = Arc::new(OnceLock::new());
    for line in include_str!("../../../crates/ifmatch-azure-tables/tests/data/filters.txt").lines() {
        let Some((filter, finds)) = line.split_once(" => ").filter(|_| !line.starts_with('#')) else { continue };
        let shared = Arc::clone(&shared);
        suite.case(format!("tables: filter {filter}"), move |site| filtered(site, &shared, filter, finds));
    }
    for size in [1, 4, 5, 1000] {
        suite.case(format!("tables: pages of {size}"), move |site| pages(site, size));
    }
    suite.case("tables: a selection of properties", selected);
}

/// The path of a table with five entities, named by their row keys.
fn filled(site: &Site) -> String {
    let mut table = Table::new(site);
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
        table.insert(partition, row, &properties).is(204);
    }
    table.path
}

fn filtered(site: &Site, shared: &OnceLock<String>, filter: &str, finds: &str) {
    let path = shared.get_or_init(|| filled(site)).clone();
    let mut table = Table { http: site.tables(), path };
    let encoded = utf8_percent_encode(filter, NON_ALPHANUMERIC);
    let reply = table.send("GET", &format!("()?$filter={encoded}"), &[], "");
    if finds == "refused" {
        return refused(reply, 400, "InvalidInput");
    }
    let json = reply.is(200).json();
    let rows = json["value"].as_array().expect("a list").iter();
    let found: String = rows.map(|entity| entity["RowKey"].as_str().expect("a key")).collect();
    assert_eq!(found, if finds == "nothing" { "" } else { finds });
}

/// In the order of partition key, then row key.
fn pages(site: &Site, most: usize) {
    let mut table = Table::new(site);
    let mut keys = Vec::new();
    for partition in ["a", "a b", "b"] {
        for row in ["1", "10", "2", "é"] {
            table.insert(partition, row, &json!({})).is(204);
            keys.push((partition.to_owned(), row.to_owned()));
        }
    }
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let page = table.send("GET", &format!("()?$top={most}{next}"), &[], "").is(200);
        let json = page.json();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let rows = json["value"].as_array().expect("a list");
        assert!(rows.len() <= most);
        found.extend(rows.iter().map(|entity| (text(&entity["PartitionKey"]), text(&entity["RowKey"]))));
        if page.field("x-ms-continuation-nextpartitionkey").is_empty() {
            break;
        }
        let [partition, row] =
            ["nextpartitionkey", "nextrowkey"].map(|key| page.field(&format!("x-ms-continuation-{key}")).to_owned());
        next = format!("&NextPartitionKey={partition}&NextRowKey={row}");
    }
    assert_eq!(found, keys);
}

fn selected(site: &Site) {
    let mut table = Table::new(site);
    table.insert("p", "r", &json!({ "a": 1, "b": 2 })).is(204);
    let found = table.send("GET", "()?$select=RowKey,b", &[], "").is(200).json();
    assert_eq!(found["value"], json!([{ "RowKey": "r", "b": 2 }]));
}
