//! The properties of an entity, in requests and in the store.

use std::collections::BTreeMap;

use ifmatch_blob::store::{StoreError, StoreErrorKind};
use serde_json::{Map, Value as Json, json};

use crate::entity::edm::{self, EdmValue};
use crate::entity::key::EntityKey;
use crate::error::{ErrorCode, TableError};

/// The properties of an entity, except keys and timestamp.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entity {
    properties: BTreeMap<Box<str>, EdmValue>,
}

/// Version of the stored format.
const VERSION: u64 = 1;
/// Maximum number of properties, except keys and timestamp.
const MAX_PROPERTIES: usize = 252;
/// Maximum length of a property's name, in characters.
const MAX_NAME: usize = 255;
/// Maximum size of an entity as Azure counts it, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// Suffix of type annotations.
pub(crate) const TYPE: &str = "@odata.type";
/// The built-in properties.
pub(crate) const PARTITION_KEY: &str = "PartitionKey";
pub(crate) const ROW_KEY: &str = "RowKey";
pub(crate) const TIMESTAMP: &str = "Timestamp";
/// Built-in properties with their types.
const BUILT_IN: [(&str, &str); 3] = [
    (PARTITION_KEY, "Edm.String"),
    (ROW_KEY, "Edm.String"),
    (TIMESTAMP, "Edm.DateTime"),
];

impl Entity {
    /// Parses the body of a request, ignoring its keys and timestamp.
    ///
    /// # Errors
    /// A property isn't valid.
    pub(crate) fn parse(body: &Map<String, Json>) -> Result<Self, TableError> {
        for (name, r#type) in BUILT_IN {
            check_type(body, name, r#type)?;
        }
        let mut properties = BTreeMap::new();
        for (name, json) in body {
            let is_built_in = BUILT_IN.iter().any(|(own, _)| own == name);
            if is_built_in || name.starts_with("odata.") || name.ends_with(TYPE) {
                continue;
            }
            check_name(name)?;
            let declared = body
                .get(&format!("{name}{TYPE}"))
                .map(type_name)
                .transpose()?;
            if let Some(value) = EdmValue::parse(json, declared)? {
                properties.insert(name.as_str().into(), value);
            }
        }
        Ok(Self { properties })
    }

    /// Returns this entity with the properties of another one on top.
    #[must_use]
    pub(crate) fn merged(mut self, other: &Self) -> Self {
        self.properties.extend(
            other
                .properties
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        self
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// There are too many properties, or too many bytes.
    pub(crate) fn check(&self, key: &EntityKey) -> Result<(), TableError> {
        if self.properties.len() > MAX_PROPERTIES {
            return Err(TableError::new(ErrorCode::TooManyProperties));
        }
        if self.bytes(key) > MAX_BYTES {
            Err(TableError::new(ErrorCode::EntityTooLarge))
        } else {
            Ok(())
        }
    }

    /// Returns the size as Azure counts it, in bytes: 4 more than the keys, and 8 more than each property.
    pub(crate) fn bytes(&self, key: &EntityKey) -> usize {
        let keys = 4 + edm::utf16_bytes(&key.partition) + edm::utf16_bytes(&key.row);
        let each = self
            .properties
            .iter()
            .map(|(name, value)| 8 + edm::utf16_bytes(name) + value.size());
        keys + each.sum::<usize>()
    }

    /// Returns the value of a property.
    pub(crate) fn get(&self, name: &str) -> Option<&EdmValue> {
        self.properties.get(name)
    }

    /// Returns the properties, ordered by name.
    pub(crate) fn properties(&self) -> impl Iterator<Item = (&str, &EdmValue)> {
        self.properties.iter().map(|(name, value)| (&**name, value))
    }

    /// Encodes the entity for the store.
    pub(crate) fn encode(&self) -> String {
        let mut stored = Map::new();
        for (name, value) in self.properties() {
            let (json, declared) = value.to_json();
            stored.extend(declared.map(|declared| (format!("{name}{TYPE}"), declared.into())));
            stored.insert(name.to_owned(), json);
        }
        json!({ "version": VERSION, "properties": stored }).to_string()
    }

    /// Decodes a stored entity.
    ///
    /// # Errors
    /// The bytes are damaged, or were written by a newer release.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let damaged = || {
            StoreError::new(
                StoreErrorKind::Unreadable,
                "the entity is damaged, or was written by a newer release",
            )
        };
        let stored: Json = serde_json::from_slice(bytes).map_err(|_| damaged())?;
        match (&stored["version"], &stored["properties"]) {
            (version, Json::Object(properties)) if *version == VERSION => {
                Self::parse(properties).map_err(|_| damaged())
            }
            _ => Err(damaged()),
        }
    }
}

/// Returns the key in the body of a request.
///
/// # Errors
/// A key is missing or not valid.
pub(crate) fn key_in(body: &Map<String, Json>) -> Result<EntityKey, TableError> {
    let key = |name: &str| match body.get(name) {
        Some(Json::String(key)) => Ok(key.as_str()),
        Some(Json::Null) | None => Err(TableError::new(ErrorCode::PropertiesNeedValue)),
        Some(_) => Err(TableError::invalid("a key must be a string")),
    };
    EntityKey::new(key(PARTITION_KEY)?, key(ROW_KEY)?)
}

/// Rejects a property with a type annotation that contradicts its type.
fn check_type(body: &Map<String, Json>, name: &str, r#type: &str) -> Result<(), TableError> {
    match body
        .get(&format!("{name}{TYPE}"))
        .map(type_name)
        .transpose()?
    {
        Some(declared) if declared != r#type => Err(TableError::invalid(format!(
            "the type of {name} must be {type}"
        ))),
        _ => Ok(()),
    }
}

/// Reads a type annotation.
fn type_name(json: &Json) -> Result<&str, TableError> {
    json.as_str()
        .ok_or_else(|| TableError::invalid("the type of a property must be a string"))
}

/// Rejects a name that isn't a C# identifier or is too long.
fn check_name(name: &str) -> Result<(), TableError> {
    if name.chars().count() > MAX_NAME {
        return Err(TableError::new(ErrorCode::PropertyNameTooLong));
    }
    let begins = name.starts_with(|char: char| char.is_alphabetic() || char == '_');
    let inner = |char: char| char.is_alphanumeric() || char == '_';
    if begins && name.chars().all(inner) {
        Ok(())
    } else {
        Err(TableError::new(ErrorCode::PropertyNameInvalid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &Json) -> Result<Entity, TableError> {
        Entity::parse(body.as_object().expect("an object"))
    }

    #[test]
    fn entities_round_trip() {
        let body = json!({
            "PartitionKey": "p", "RowKey": "r", "Timestamp": "2020-01-01T00:00:00Z", "odata.etag": "x",
            "text": "it", "text@odata.type": "Edm.String", "large": "1099511627776", "large@odata.type": "Edm.Int64",
            "real": 0.1, "whole": 7, "nothing": null, "_x1": true,
        });
        let entity = parse(&body).expect("an entity");
        let names: Vec<_> = entity.properties().map(|(name, _)| name).collect();
        assert_eq!(names, ["_x1", "large", "real", "text", "whole"]);
        assert_eq!(
            Entity::decode(entity.encode().as_bytes()).expect("stored"),
            entity
        );
    }

    #[test]
    fn built_in_properties_have_fixed_types() {
        let rows = [
            ("PartitionKey", "Edm.String", true),
            ("PartitionKey", "Edm.Int32", false),
            ("RowKey", "Edm.String", true),
            ("RowKey", "Edm.Guid", false),
            ("Timestamp", "Edm.DateTime", true),
            ("Timestamp", "Edm.String", false),
        ];
        for (name, declared, is_right) in rows {
            let body =
                json!({ name: "2020-01-01T00:00:00Z", format!("{name}@odata.type"): declared });
            let error = parse(&body).err().map(|error| error.code());
            assert_eq!(
                error,
                (!is_right).then_some(ErrorCode::InvalidInput),
                "{body}"
            );
        }
    }

    #[test]
    fn decoding_rejects_damaged_bytes() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"version":2,"properties":{}}"#,
            r#"{"version":1}"#,
            "\"x\"",
        ] {
            let error = Entity::decode(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), &StoreErrorKind::Unreadable, "{text}");
        }
    }

    #[test]
    fn merging_keeps_other_properties() {
        let before = parse(&json!({ "a": 1, "b": 2 })).expect("an entity");
        let merged =
            before.merged(&parse(&json!({ "b": "3", "c": 4, "a": null })).expect("an entity"));
        assert_eq!(
            merged,
            parse(&json!({ "a": 1, "b": "3", "c": 4 })).expect("an entity")
        );
    }

    #[test]
    fn property_names_are_identifiers() {
        for name in ["", "1a", "a-b", "a b", "a.b", "@a"] {
            assert_eq!(
                parse(&json!({ name: 1 })).unwrap_err().code(),
                ErrorCode::PropertyNameInvalid,
                "{name}"
            );
        }
        assert!(parse(&json!({ "é": 1 })).is_ok());
        assert_eq!(
            parse(&json!({ "n".repeat(256): 1 })).unwrap_err().code(),
            ErrorCode::PropertyNameTooLong
        );
    }

    #[test]
    fn entities_have_limits() {
        let key = EntityKey::new("p", "r").expect("valid");
        let many = |count: usize, text: &str| {
            let body: Map<_, _> = (0..count)
                .map(|at| (format!("p{at:03}"), Json::from(text)))
                .collect();
            Entity::parse(&body).expect("an entity").check(&key)
        };
        assert!(many(MAX_PROPERTIES, "x").is_ok());
        assert_eq!(
            many(MAX_PROPERTIES + 1, "x").unwrap_err().code(),
            ErrorCode::TooManyProperties
        );
        let text = "x".repeat(32 * 1024);
        assert!(many(15, &text).is_ok());
        assert_eq!(
            many(16, &text).unwrap_err().code(),
            ErrorCode::EntityTooLarge
        );
    }

    #[test]
    fn both_keys_are_required() {
        let key = |body: Json| key_in(body.as_object().expect("an object"));
        assert!(key(json!({ "PartitionKey": "", "RowKey": "" })).is_ok());
        for body in [
            json!({ "PartitionKey": "p" }),
            json!({ "RowKey": "r", "PartitionKey": null }),
        ] {
            assert_eq!(
                key(body).unwrap_err().code(),
                ErrorCode::PropertiesNeedValue
            );
        }
        assert_eq!(
            key(json!({ "PartitionKey": 1, "RowKey": "r" }))
                .unwrap_err()
                .code(),
            ErrorCode::InvalidInput
        );
    }
}
