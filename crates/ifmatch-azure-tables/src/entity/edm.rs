//! Property types and their JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value as Json};
use uuid::Uuid;

use crate::entity::datetime::DateTime;
use crate::error::{ErrorCode, TableError};

/// The value of a property.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EdmValue {
    String(Box<str>),
    Int32(i32),
    Int64(i64),
    Double(f64),
    Boolean(bool),
    DateTime(DateTime),
    Guid(Uuid),
    Binary(Box<[u8]>),
}

/// Maximum size of a value, in bytes. Text counts two bytes per UTF-16 unit.
const MAX_BYTES: usize = 64 * 1024;
/// Bytes that Azure counts for the length of text and binary values.
const LENGTH: usize = 4;
/// Names of doubles that JSON numbers can't represent.
const NOT_FINITE: [(&str, f64); 3] = [
    ("NaN", f64::NAN),
    ("Infinity", f64::INFINITY),
    ("-Infinity", f64::NEG_INFINITY),
];

impl EdmValue {
    /// Parses a value of the declared type, or of the type implied by its JSON. Returns `None` for null.
    ///
    /// # Errors
    /// The value doesn't have that type, the type is unknown, or the value is too large.
    pub(crate) fn parse(json: &Json, declared: Option<&str>) -> Result<Option<Self>, TableError> {
        let value = match (declared, json) {
            (_, Json::Null) => return Ok(None),
            (None, Json::Bool(value)) => Some(Self::Boolean(*value)),
            (None, Json::Number(number)) => Some(Self::of_number(number)),
            (None | Some("Edm.String"), Json::String(text)) => {
                Some(Self::String(text.as_str().into()))
            }
            (Some(declared), json) => Self::declared(declared, json),
            (None, Json::Array(_) | Json::Object(_)) => None,
        };
        let value = value.ok_or_else(|| {
            TableError::invalid("the value of a property does not match its type")
        })?;
        if value.size() > MAX_BYTES + LENGTH {
            return Err(TableError::new(ErrorCode::PropertyValueTooLarge));
        }
        Ok(Some(value))
    }

    /// Without a declared type, a number is an `Edm.Int32` if it fits.
    fn of_number(number: &Number) -> Self {
        let whole = number
            .as_i64()
            .and_then(|number| i32::try_from(number).ok());
        whole.map_or_else(
            || Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            Self::Int32,
        )
    }

    /// Parses a value of this type.
    fn declared(declared: &str, json: &Json) -> Option<Self> {
        let text = json.as_str();
        let whole = || text.map_or_else(|| json.as_i64(), |text| text.parse().ok());
        Some(match declared {
            "Edm.Int32" => Self::Int32(i32::try_from(whole()?).ok()?),
            "Edm.Int64" => Self::Int64(whole()?),
            "Edm.Double" => Self::Double(text.map_or_else(|| json.as_f64(), double)?),
            "Edm.Boolean" => Self::Boolean(text.map_or_else(|| json.as_bool(), boolean)?),
            "Edm.DateTime" => Self::DateTime(DateTime::parse(text?)?),
            "Edm.Guid" => Self::Guid(Uuid::try_parse(text?).ok()?),
            "Edm.Binary" => Self::Binary(STANDARD.decode(text?).ok()?.into()),
            _ => return None,
        })
    }

    /// Returns the JSON, and the type if the JSON doesn't imply it.
    pub(crate) fn to_json(&self) -> (Json, Option<&'static str>) {
        match self {
            Self::String(text) => (Json::from(&**text), None),
            Self::Int32(number) => (Json::from(*number), None),
            Self::Boolean(value) => (Json::from(*value), None),
            Self::Double(number) => match Number::from_f64(*number) {
                Some(number) => (Json::Number(number), None),
                None => (Json::from(not_finite(*number)), Some("Edm.Double")),
            },
            Self::Int64(number) => (Json::from(number.to_string()), Some("Edm.Int64")),
            Self::DateTime(moment) => (Json::from(moment.to_string()), Some("Edm.DateTime")),
            Self::Guid(id) => (Json::from(id.to_string()), Some("Edm.Guid")),
            Self::Binary(bytes) => (Json::from(STANDARD.encode(bytes)), Some("Edm.Binary")),
        }
    }

    /// Returns the size as Azure counts it, in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::String(text) => utf16_bytes(text) + LENGTH,
            Self::Binary(bytes) => bytes.len() + LENGTH,
            Self::Int32(_) => 4,
            Self::Int64(_) | Self::Double(_) | Self::DateTime(_) => 8,
            Self::Boolean(_) => 1,
            Self::Guid(_) => 16,
        }
    }
}

/// Returns the length of text as Azure counts it.
pub(crate) fn utf16_bytes(text: &str) -> usize {
    text.encode_utf16().count() * 2
}

/// Parses a boolean in any case: .NET programs send `True` and `False`.
fn boolean(text: &str) -> Option<bool> {
    text.to_ascii_lowercase().parse().ok()
}

/// Parses a double, by name if it isn't finite.
fn double(text: &str) -> Option<f64> {
    let named = NOT_FINITE
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value);
    named.or_else(|| text.parse().ok().filter(|number: &f64| number.is_finite()))
}

/// Returns the name of a double that isn't finite.
fn not_finite(number: f64) -> &'static str {
    let [nan, infinity, minus_infinity] = NOT_FINITE.map(|(name, _)| name);
    match number {
        number if number.is_nan() => nan,
        number if number > 0.0 => infinity,
        _ => minus_infinity,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(json: &Json, declared: Option<&str>) -> Option<EdmValue> {
        EdmValue::parse(json, declared).expect("a value")
    }

    #[test]
    fn values_round_trip() {
        let guid = Uuid::from_u128(7);
        let values = [
            EdmValue::String("ünïcödé 🦀 \u{1}".into()),
            EdmValue::Int32(i32::MIN),
            EdmValue::Int64(i64::MAX),
            EdmValue::Double(0.1 + 0.2),
            EdmValue::Double(5.0),
            EdmValue::Double(f64::MIN_POSITIVE),
            EdmValue::Double(1.797_693_134_862_315_7e308),
            EdmValue::Double(f64::INFINITY),
            EdmValue::Double(f64::NEG_INFINITY),
            EdmValue::Boolean(true),
            EdmValue::DateTime(DateTime::parse("2026-11-21T12:30:15.1234567Z").expect("a moment")),
            EdmValue::Guid(guid),
            EdmValue::Binary([0, 255].into()),
        ];
        for value in values {
            let (json, declared) = value.to_json();
            let stored: Json = serde_json::from_str(&json.to_string()).expect("JSON");
            assert_eq!(parse(&stored, declared), Some(value));
        }
        assert!(
            matches!(parse(&json!("NaN"), Some("Edm.Double")), Some(EdmValue::Double(number)) if number.is_nan())
        );
    }

    #[test]
    fn infers_types_from_json() {
        let rows = [
            (json!(1), EdmValue::Int32(1)),
            (json!(1.0), EdmValue::Double(1.0)),
            (json!(3_000_000_000_u64), EdmValue::Double(3e9)),
            (json!("1"), EdmValue::String("1".into())),
            (json!(false), EdmValue::Boolean(false)),
        ];
        for (json, value) in rows {
            assert_eq!(parse(&json, None), Some(value));
        }
        assert_eq!(parse(&Json::Null, Some("Edm.Guid")), None);
        assert_eq!(
            parse(&json!("5"), Some("Edm.Int32")),
            Some(EdmValue::Int32(5))
        );
        assert_eq!(
            parse(&json!("2.5"), Some("Edm.Double")),
            Some(EdmValue::Double(2.5))
        );
        for (text, value) in [
            ("true", true),
            ("True", true),
            ("False", false),
            ("FALSE", false),
        ] {
            assert_eq!(
                parse(&json!(text), Some("Edm.Boolean")),
                Some(EdmValue::Boolean(value)),
                "{text}"
            );
        }
    }

    #[test]
    fn rejects_values_that_do_not_match_their_type() {
        let rows = [
            (json!(2_147_483_648_u64), "Edm.Int32"),
            (json!("9223372036854775808"), "Edm.Int64"),
            (json!(1.5), "Edm.Int64"),
            (json!("inf"), "Edm.Double"),
            (json!("1e999"), "Edm.Double"),
            (json!("yes"), "Edm.Boolean"),
            (json!("today"), "Edm.DateTime"),
            (json!("123"), "Edm.Guid"),
            (json!("_"), "Edm.Binary"),
            (json!(1), "Edm.String"),
            (json!("x"), "Edm.Unknown"),
            (json!({}), "Edm.String"),
        ];
        for (json, declared) in rows {
            assert_eq!(
                EdmValue::parse(&json, Some(declared)).unwrap_err().code(),
                ErrorCode::InvalidInput,
                "{json} {declared}"
            );
        }
        assert_eq!(
            EdmValue::parse(&json!([]), None).unwrap_err().code(),
            ErrorCode::InvalidInput
        );
        let long = json!("x".repeat(MAX_BYTES / 2 + 1));
        assert_eq!(
            EdmValue::parse(&long, None).unwrap_err().code(),
            ErrorCode::PropertyValueTooLarge
        );
    }
}
