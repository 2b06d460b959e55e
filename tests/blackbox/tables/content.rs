//! Property types and metadata levels.

use serde_json::{Value, json};

use crate::http::Reply;
use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, Table, refused};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("tables: metadata levels", levels);
    suite.case("tables: merges and listings keep types", kept);
    suite.case("tables: a selection keeps types", selected);
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
    let (account, name) = (site.signer.account(), table.path.trim_start_matches('/').to_owned());
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
        let parts = parts.into_iter().flat_map(|part| part.as_object().expect("an object").clone());
        let reply = read(&mut table, ENTITY, &format!("application/json;odata={level}")).is(200);
        assert!(reply.header("content-type").starts_with(&format!("application/json;odata={level};")));
        assert_eq!(reply.etag(), tag);
        let mut json = reply.json();
        let entity = json.as_object_mut().expect("an object");
        assert!(entity.remove("Timestamp").is_some());
        for (url, path, expected) in [
            ("odata.metadata", format!("/{account}/$metadata#{name}/@Element"), level != "nometadata"),
            ("odata.id", format!("/{account}/{name}{ENTITY}"), level == "fullmetadata"),
        ] {
            let value = entity.remove(url);
            assert_eq!(value.is_some(), expected, "{level} {url}");
            assert!(value.is_none_or(|value| value.as_str().is_some_and(|value| value.ends_with(&path))), "{url}");
        }
        assert_eq!(json, Value::Object(parts.collect()), "{level}");
    }
    let reply = read(&mut table, ENTITY, "*/*").is(200);
    assert!(reply.text().contains("\"even\":5.0,"), "doubles keep the point: {}", reply.text());
    refused(read(&mut table, ENTITY, "application/atom+xml"), 415, "AtomFormatNotSupported");
    let by_parameter = format!("{ENTITY}?$format=application/json;odata=nometadata");
    let json = read(&mut table, &by_parameter, "application/atom+xml").is(200).json();
    assert_eq!((json["whole"].clone(), json["odata.etag"].clone()), (json!(42), Value::Null));
}

fn kept(site: &Site) {
    let mut table = Table::new(site);
    table.insert("p", "r", &typed()).is(204);
    let mut expected = table.properties();
    table.write("MERGE", None, &json!({ "whole": 43 })).is(204);
    expected["whole"] = 43.into();
    assert_eq!(table.properties(), expected);
    let mut one = read(&mut table, ENTITY, "application/json").is(200).json();
    one.as_object_mut().expect("an object").remove("odata.metadata");
    let listed = read(&mut table, "()", "application/json").is(200).json();
    assert_eq!(listed["value"], json!([one]));
}

fn selected(site: &Site) {
    let mut table = Table::new(site);
    table.insert("p", "r", &json!({ "a": 1, "b": "2", "b@odata.type": "Edm.Int64" })).is(204);
    let one = table.send("GET", &format!("{ENTITY}?$select=b,RowKey,none"), &[], "").is(200).json();
    assert_eq!(one, json!({ "RowKey": "r", "b": "2" }));
    let minimal = read(&mut table, &format!("{ENTITY}?$select=b"), "application/json").is(200).json();
    assert_eq!((&minimal["b@odata.type"], &minimal["a"]), (&json!("Edm.Int64"), &Value::Null));
    assert!(minimal["odata.etag"].is_string());
}
