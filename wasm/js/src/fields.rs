//! Conversions of JavaScript's header fields and values.

use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use js_sys::{Array, Date, Object, Reflect, TypeError};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

#[wasm_bindgen]
extern "C" {
    /// A request.
    #[wasm_bindgen(typescript_type = "RequestLike")]
    pub type RequestLike;
    // An exception that isn't caught here would leave its part of the stack in use: after some hundreds, nothing works.
    #[wasm_bindgen(method, getter, structural, catch, js_name = method)]
    fn its_method(this: &RequestLike) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter, structural, catch, js_name = headers)]
    fn its_headers(this: &RequestLike) -> Result<HeadersLike, JsValue>;

    /// Header fields.
    #[wasm_bindgen(typescript_type = "HeadersLike")]
    pub type HeadersLike;
    #[wasm_bindgen(method, structural, catch, js_name = get)]
    fn its(this: &HeadersLike, name: &str) -> Result<JsValue, JsValue>;

    // The bindings would convert any value to a string, bytes or a number.
    /// A string.
    #[wasm_bindgen(typescript_type = "string")]
    pub type Text;
    /// A `Date`.
    #[wasm_bindgen(typescript_type = "Date")]
    pub type Moment;
    /// A 64-bit integer.
    #[wasm_bindgen(typescript_type = "bigint")]
    pub type Long;

    #[wasm_bindgen(catch, js_namespace = Object)]
    fn keys(object: &JsValue) -> Result<Array, JsValue>;
}

impl RequestLike {
    /// Returns the method.
    pub(crate) fn method(&self) -> Result<String, JsValue> {
        self.check()?;
        self.its_method()?
            .as_string()
            .ok_or_else(|| invalid("the method is a text"))
    }

    /// Returns the header fields.
    pub(crate) fn headers(&self) -> Result<HeadersLike, JsValue> {
        self.check()?;
        let headers = self.its_headers()?;
        headers.check()?;
        Ok(headers)
    }

    fn check(&self) -> Result<(), JsValue> {
        if self.is_object() {
            Ok(())
        } else {
            Err(invalid("a request is an object with a method and headers"))
        }
    }
}

impl HeadersLike {
    /// Rejects what isn't a set of fields, such as `{ etag: … }`.
    pub(crate) fn check(&self) -> Result<(), JsValue> {
        let get = if self.is_object() {
            Reflect::get(self, &"get".into())?
        } else {
            JsValue::UNDEFINED
        };
        let what = "headers are a Headers, or an object with a method get(name): of plain fields, new Headers(fields)";
        if get.is_function() {
            Ok(())
        } else {
            Err(invalid(what))
        }
    }

    /// Returns the value of a field.
    pub(crate) fn get(&self, name: &str) -> Result<Option<String>, JsValue> {
        let value = self.its(name)?;
        if value.is_null() || value.is_undefined() {
            return Ok(None);
        }
        value
            .as_string()
            .map(Some)
            .ok_or_else(|| invalid(&format!("the header {name} is a text")))
    }
}

impl Text {
    /// Returns the string.
    pub(crate) fn get(&self) -> Result<String, JsValue> {
        self.as_string()
            .ok_or_else(|| invalid("a tag and a name are texts"))
    }
}

/// Returns the fields with these names. A value that is invalid in HTTP is kept as a value without meaning.
pub(crate) fn read(headers: &HeadersLike, names: &[HeaderName]) -> Result<HeaderMap, JsValue> {
    const MEANINGLESS: HeaderValue = HeaderValue::from_static("");
    let mut found = HeaderMap::with_capacity(names.len());
    for name in names {
        if let Some(text) = headers.get(name.as_str())? {
            // Some runtimes decode fields as UTF-8.
            let bytes = latin1(&text).unwrap_or_else(|| text.into_bytes());
            found.insert(
                name.clone(),
                HeaderValue::from_bytes(&bytes).unwrap_or(MEANINGLESS),
            );
        }
    }
    Ok(found)
}

/// Parses one of our own tags, which must be valid.
pub(crate) fn tag(text: &str) -> Result<EntityTag, JsValue> {
    let tag = latin1(text).and_then(|bytes| EntityTag::parse(&bytes).ok());
    tag.ok_or_else(|| {
        invalid(&format!(
            "{text:?} is no entity tag: write it with its quotes, as in '\"v1\"' or 'W/\"v1\"'"
        ))
    })
}

/// The properties of a representation.
const PROPERTIES: [&str; 3] = ["etag", "lastModified", "length"];

/// Rejects properties that aren't known, such as `eTag`: they would be ignored, and a condition would silently not match.
pub(crate) fn check_properties(object: &JsValue) -> Result<(), JsValue> {
    if !object.is_instance_of::<Object>() {
        return Err(invalid(
            "validators are an object, as in { etag: '\"v1\"' }",
        ));
    }
    let mut names = keys(object)?
        .into_iter()
        .filter_map(|name| name.as_string());
    match names.find(|name| !PROPERTIES.contains(&name.as_str())) {
        Some(name) => Err(invalid(&format!(
            "{name:?} is no property of a representation: use etag, lastModified and length"
        ))),
        None => Ok(()),
    }
}

/// Returns the tags of a property: a string, a list, or nothing.
pub(crate) fn tags(object: &JsValue) -> Result<Vec<EntityTag>, JsValue> {
    let value = Reflect::get(object, &"etag".into())?;
    if value.is_null() || value.is_undefined() {
        return Ok(Vec::new());
    }
    let one = |value: &JsValue| {
        tag(&value
            .as_string()
            .ok_or_else(|| invalid("an etag is a text, quotes included"))?)
    };
    match value.dyn_ref::<Array>() {
        Some(list) => list.iter().map(|value| one(&value)).collect(),
        None => Ok(vec![one(&value)?]),
    }
}

/// Returns the date of a property: a string, a `Date`, or nothing.
pub(crate) fn last_modified(object: &JsValue) -> Result<Option<HttpDate>, JsValue> {
    let value = Reflect::get(object, &"lastModified".into())?;
    if value.is_null() || value.is_undefined() {
        return Ok(None);
    }
    let date = match (value.as_string(), value.dyn_ref::<Date>()) {
        (Some(text), _) => HttpDate::parse(text.as_bytes()),
        (None, Some(date)) => seconds(date.get_time()).map(HttpDate::from_unix),
        (None, None) => None,
    };
    let what = "lastModified is a Date, or a text as in 'Sun, 06 Nov 1994 08:49:37 GMT'";
    date.map(Some).ok_or_else(|| invalid(what))
}

/// Rounds up to whole seconds: a time within a second must not count as its beginning.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a Date is within 8.64e15 milliseconds"
)]
pub(crate) fn seconds(millis: f64) -> Option<i64> {
    millis.is_finite().then(|| (millis / 1000.0).ceil() as i64)
}

/// Converts a value to JavaScript's string with one character per byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|char| u8::try_from(char).ok()).collect()
}

/// Creates a `TypeError`.
pub(crate) fn invalid(what: &str) -> JsValue {
    TypeError::new(what).into()
}

/// Creates an object with these properties.
pub(crate) fn object(properties: &[(&str, JsValue)]) -> Result<JsValue, JsValue> {
    let object = Object::new();
    for (name, value) in properties {
        Reflect::set(&object, &(*name).into(), value)?;
    }
    Ok(object.into())
}
