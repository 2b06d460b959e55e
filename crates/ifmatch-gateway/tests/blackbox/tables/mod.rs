//! Tables: entities, their tags, and queries.

mod queries;
mod rejections;
mod writes;

use serde_json::{Value, json};

use crate::http::{Http, Reply};
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    rejections::add_access(suite);
    writes::add(suite);
    queries::add_content(suite);
    rejections::add(suite);
    writes::add_conditions(suite);
    queries::add(suite);
}

/// A client with its own table.
struct Table<'a> {
    http: Http<'a>,
    path: String,
}

impl<'a> Table<'a> {
    fn new(site: &'a Site) -> Self {
        let (mut http, name) = (site.tables(), site.name());
        http.send(
            "POST",
            "/Tables",
            &JSON,
            json!({ "TableName": name }).to_string(),
        )
        .is(201);
        Self {
            http,
            path: format!("/{name}"),
        }
    }

    /// Another client of a table.
    fn at(site: &'a Site, path: &str) -> Self {
        Self {
            http: site.tables(),
            path: path.to_owned(),
        }
    }

    /// Sends a request to this table. The address begins after the table's name.
    #[track_caller]
    fn send(
        &mut self,
        method: &str,
        address: &str,
        fields: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Reply {
        let fields = [&JSON, fields].concat();
        self.http
            .send(method, &format!("{}{address}", self.path), &fields, body)
    }

    /// Inserts an entity.
    #[track_caller]
    fn insert(&mut self, partition: &str, row: &str, properties: &Value) -> Reply {
        let mut entity = properties.clone();
        entity["PartitionKey"] = partition.into();
        entity["RowKey"] = row.into();
        self.send(
            "POST",
            "",
            &[("prefer", "return-no-content")],
            entity.to_string(),
        )
    }

    /// Replaces the entity `p`, `r`, or merges into it.
    #[track_caller]
    fn write(&mut self, method: &str, if_match: Option<&str>, properties: &Value) -> Reply {
        let fields: Vec<_> = if_match.map(|tag| ("if-match", tag)).into_iter().collect();
        self.send(method, ENTITY, &fields, properties.to_string())
    }

    #[track_caller]
    fn delete(&mut self, if_match: &str) -> Reply {
        self.send("DELETE", ENTITY, &[("if-match", if_match)], "")
    }

    /// Returns the properties of the entity `p`, `r`, or null if it doesn't exist.
    #[track_caller]
    fn properties(&mut self) -> Value {
        let reply = self.send("GET", ENTITY, &[], "");
        if reply.status == 404 {
            return Value::Null;
        }
        let mut json = reply.is(200).json();
        for name in ["PartitionKey", "RowKey", "Timestamp"] {
            assert!(
                json.as_object_mut()
                    .expect("an object")
                    .remove(name)
                    .is_some(),
                "{name}"
            );
        }
        json
    }
}

const ENTITY: &str = "(PartitionKey='p',RowKey='r')";
pub(crate) const JSON: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json;odata=nometadata"),
];
