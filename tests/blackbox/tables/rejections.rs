//! Rejected requests: each gets its documented code and changes nothing.

use serde_json::{Value, json};

use crate::site::Site;
use crate::suite::Suite;
use crate::tables::{ENTITY, JSON, Table, refused};

pub(crate) fn add(suite: &mut Suite) {
    for (name, body, status, code) in BODIES {
        suite.case(format!("tables: rejected entity, {name}"), move |site| insert(site, body, status, code));
    }
    suite.case("tables: rejected entity, limits", limits);
    suite.case("tables: rejected entity, Atom", |site| {
        let mut table = Table::new(site);
        let atom = [("content-type", "application/atom+xml")];
        let address = table.path.clone();
        refused(table.http.send("POST", &address, &atom, "{}"), 415, "AtomFormatNotSupported");
    });
    suite.case("tables: a merge respects the limits", merge_limit);
    for (name, status, code) in NAMES {
        suite.case(format!("tables: rejected name {name}"), move |site| {
            let body = serde_json::from_str::<Value>(name).expect("JSON");
            let reply = site.tables().send("POST", "/Tables", &JSON, json!({ "TableName": body }).to_string());
            refused(reply, status, code);
        });
    }
    suite.case("tables: rejected name, missing", |site| {
        refused(site.tables().send("POST", "/Tables", &JSON, "{}"), 400, "PropertiesNeedValue");
    });
    for (address, code) in ADDRESSES {
        suite.case(format!("tables: rejected address {address}"), move |site| {
            refused(Table::new(site).send("GET", address, &[], ""), 400, code);
        });
    }
    for (method, address) in NOT_IMPLEMENTED {
        suite.case(format!("tables: not implemented, {method} {address}"), move |site| {
            refused(site.tables().send(method, address, &JSON, ""), 501, "NotImplemented");
        });
    }
    suite.case("tables: other methods", methods);
    suite.case("tables: X-HTTP-Method", overrides);
    suite.case("tables: X-HTTP-Method twice", |site| {
        let twice = [("x-http-method", "MERGE"), ("x-http-method", "PUT")];
        refused(Table::new(site).send("POST", ENTITY, &twice, "{}"), 400, "XMethodIncorrectCount");
    });
}

/// Bodies of Insert Entity.
const BODIES: [(&str, &str, u16, &str); 15] = [
    ("no body", "", 400, "InvalidInput"),
    ("a list", "[]", 400, "InvalidInput"),
    ("an incomplete object", r#"{"PartitionKey":"p","RowKey":"r""#, 400, "InvalidInput"),
    ("no row key", r#"{"PartitionKey":"p"}"#, 400, "PropertiesNeedValue"),
    ("a key that is null", r#"{"PartitionKey":"p","RowKey":null}"#, 400, "PropertiesNeedValue"),
    ("a key that is a number", r#"{"PartitionKey":"p","RowKey":7}"#, 400, "InvalidInput"),
    ("a slash in a key", r#"{"PartitionKey":"p/q","RowKey":"r"}"#, 400, "InvalidInput"),
    ("a NUL in a key", r#"{"PartitionKey":"p","RowKey":"a\u0000b"}"#, 400, "InvalidInput"),
    ("the name of a property", r#"{"PartitionKey":"p","RowKey":"r","a-b":1}"#, 400, "PropertyNameInvalid"),
    ("an object in a property", r#"{"PartitionKey":"p","RowKey":"r","a":{}}"#, 400, "InvalidInput"),
    (
        "a value that does not match its type",
        r#"{"PartitionKey":"p","RowKey":"r","a":"x","a@odata.type":"Edm.Int64"}"#,
        400,
        "InvalidInput",
    ),
    (
        "an unknown type",
        r#"{"PartitionKey":"p","RowKey":"r","a":"x","a@odata.type":"Edm.Geography"}"#,
        400,
        "InvalidInput",
    ),
    ("a list in a property", r#"{"PartitionKey":"p","RowKey":"r","a":[1]}"#, 400, "InvalidInput"),
    (
        "a type that is not a string",
        r#"{"PartitionKey":"p","RowKey":"r","a":"x","a@odata.type":1}"#,
        400,
        "InvalidInput",
    ),
    (
        "a key of the wrong type",
        r#"{"PartitionKey":"p","RowKey":"r","RowKey@odata.type":"Edm.Int32"}"#,
        400,
        "InvalidInput",
    ),
];

/// Names of tables, as JSON.
const NAMES: [(&str, u16, &str); 7] = [
    ("1", 400, "InvalidInput"),
    (r#""ab""#, 400, "OutOfRangeInput"),
    (r#""aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa""#, 400, "OutOfRangeInput"),
    (r#""1abc""#, 400, "InvalidResourceName"),
    (r#""a-b-c""#, 400, "InvalidResourceName"),
    (r#""../etc""#, 400, "InvalidResourceName"),
    (r#""Tables""#, 400, "InvalidResourceName"),
];

const ADDRESSES: [(&str, &str); 7] = [
    ("/more", "InvalidUri"),
    ("(PartitionKey='p'", "InvalidUri"),
    ("(PartitionKey='p')", "InvalidInput"),
    ("(PartitionKey='p',RowKey='%2F')", "InvalidInput"),
    ("()?$filter=a%20eq", "InvalidInput"),
    ("()?$top=-1", "InvalidInput"),
    ("()?NextPartitionKey=p", "InvalidQueryParameterValue"),
];

const NOT_IMPLEMENTED: [(&str, &str); 4] = [
    ("GET", "/?restype=service&comp=properties"),
    ("GET", "/?restype=service&comp=stats"),
    ("GET", "/table?comp=acl"),
    ("PUT", "/table?comp=acl"),
];

fn insert(site: &Site, body: &str, status: u16, code: &str) {
    let mut table = Table::new(site);
    refused(table.send("POST", "", &[], body), status, code);
    assert_eq!(table.send("GET", "()", &[], "").is(200).json()["value"], json!([]));
}

fn limits(site: &Site) {
    let with = |name: &str, value: &str| json!({ "PartitionKey": "p", "RowKey": "r", name: value }).to_string();
    let large = "x".repeat(32 * 1024);
    let many = |count: usize, value: Value| {
        let mut entity: Value = (0..count).map(|number| (format!("p{number}"), value.clone())).collect();
        entity["PartitionKey"] = "p".into();
        entity["RowKey"] = "r".into();
        entity.to_string()
    };
    let long_key = json!({ "PartitionKey": "p", "RowKey": "k".repeat(513) }).to_string();
    for (body, status, code) in [
        ("[".repeat(100_000), 400, "InvalidInput"),
        (long_key, 400, "KeyValueTooLarge"),
        (with(&"n".repeat(256), "x"), 400, "PropertyNameTooLong"),
        (with("a", &format!("{large}x")), 400, "PropertyValueTooLarge"),
        (many(253, json!(1)), 400, "TooManyProperties"),
        (many(16, large.into()), 400, "EntityTooLarge"),
        (with("a", &"x".repeat(4 * 1024 * 1024)), 413, "RequestBodyTooLarge"),
    ] {
        insert(site, &body, status, code);
    }
}

fn merge_limit(site: &Site) {
    let mut table = Table::new(site);
    let half = |from: usize| (from..from + 130).map(|number| (format!("p{number}"), json!(1))).collect::<Value>();
    let tag = table.insert("p", "r", &half(0)).is(204).etag().to_owned();
    refused(table.write("MERGE", None, &half(130)), 400, "TooManyProperties");
    assert_eq!(table.send("GET", ENTITY, &[], "").is(200).etag(), tag);
    table.write("MERGE", None, &half(50)).is(204);
}

fn methods(site: &Site) {
    let mut table = Table::new(site);
    let name = table.path.trim_start_matches('/').to_owned();
    for (method, address) in [("PUT", "/Tables".to_owned()), ("POST", format!("/Tables('{name}')"))] {
        refused(table.http.send(method, &address, &JSON, "{}"), 405, "UnsupportedHttpVerb");
    }
    for (method, address) in [("DELETE", ""), ("POST", ENTITY)] {
        refused(table.send(method, address, &[], "{}"), 405, "UnsupportedHttpVerb");
    }
}

fn overrides(site: &Site) {
    let mut table = Table::new(site);
    let with = |value| [("x-http-method", value)];
    refused(table.send("PUT", ENTITY, &with("MERGE"), "{}"), 400, "XMethodNotUsingPost");
    refused(table.send("POST", ENTITY, &with("GET"), "{}"), 400, "XMethodIncorrectValue");
    assert_eq!(table.properties(), Value::Null);
}
