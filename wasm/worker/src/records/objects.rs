//! The namespace of the objects, and where Cloudflare places them.

use js_sys::{Function, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Env, Error, ObjectNamespace, Result, Stub};

use crate::bindings;

/// Name of the Durable Object namespace.
const RECORDS: &str = "RECORDS";
/// Setting of the jurisdiction.
const JURISDICTION: &str = "IFMATCH_JURISDICTION";
/// Setting of the location hint.
const LOCATION_HINT: &str = "IFMATCH_LOCATION_HINT";

const JURISDICTIONS: &[&str] = &["eu", "us", "fedramp", "fedramp-high"];
const LOCATIONS: &[&str] = &["wnam", "enam", "sam", "weur", "eeur", "apac", "apac-ne", "apac-se", "oc", "afr", "me"];

/// The Durable Objects of the records, in the jurisdiction and near the location of the settings.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    namespace: ObjectNamespace,
    hint: Option<&'static str>,
}

/// A setting is none of the known names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is one of {}", .known.join(", "))]
struct Unknown {
    setting: &'static str,
    known: &'static [&'static str],
}

impl Objects {
    /// Opens the namespace. The Worker and the objects have the same settings, and so mean the same objects.
    ///
    /// # Errors
    /// The error says what wrangler.toml needs.
    pub(super) fn open(env: &Env) -> Result<Self> {
        let namespace = env.durable_object(RECORDS).map_err(|error| {
            let how = "[[durable_objects.bindings]] with name = \"RECORDS\" and class_name = \"Records\"";
            bindings::missing(RECORDS, "a Durable Object namespace", how, &error)
        })?;
        let setting = |setting, known| one_of(setting, known, bindings::variable(env, setting).as_deref());
        let hint = setting(LOCATION_HINT, LOCATIONS).map_err(|error| Error::RustError(error.to_string()))?;
        match setting(JURISDICTION, JURISDICTIONS).map_err(|error| Error::RustError(error.to_string()))? {
            Some(jurisdiction) => Ok(Self { namespace: within(&namespace, jurisdiction)?, hint }),
            None => Ok(Self { namespace, hint }),
        }
    }

    /// Returns the object with a name. It is created near the hint, if there is one.
    pub(super) fn stub(&self, name: &str) -> Result<Stub> {
        match self.hint {
            Some(hint) => self.namespace.get_by_name_with_location_hint(name, hint),
            None => self.namespace.get_by_name(name),
        }
    }
}

/// Returns the part of a namespace whose objects stay in a jurisdiction. The same name means another object there.
fn within(namespace: &ObjectNamespace, jurisdiction: &'static str) -> Result<ObjectNamespace> {
    let restrict: Function = Reflect::get(namespace.as_ref(), &"jurisdiction".into())?.unchecked_into();
    let part = restrict.call1(namespace.as_ref(), &JsValue::from(jurisdiction)).map_err(|error| {
        let why = Error::from(error);
        Error::RustError(format!("{JURISDICTION}: this runtime cannot place objects in a jurisdiction: deploy the Worker, or remove the setting ({why})"))
    })?;
    Ok(part.unchecked_into())
}

fn one_of(
    setting: &'static str,
    known: &'static [&'static str],
    value: Option<&str>,
) -> std::result::Result<Option<&'static str>, Unknown> {
    let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) else { return Ok(None) };
    known.iter().find(|name| **name == value).copied().map(Some).ok_or(Unknown { setting, known })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn only_known_names_are_accepted() {
        let jurisdiction = |value| one_of(JURISDICTION, JURISDICTIONS, value);
        for (value, expected) in
            [(None, None), (Some(" "), None), (Some(" eu "), Some("eu")), (Some("fedramp"), Some("fedramp"))]
        {
            assert_eq!(jurisdiction(value).unwrap(), expected, "{value:?}");
        }
        for value in ["EU", "eu,us", "europe", "weur"] {
            let error = jurisdiction(Some(value)).unwrap_err();
            assert_eq!(error.to_string(), "IFMATCH_JURISDICTION is one of eu, us, fedramp, fedramp-high");
        }
        let error = one_of(LOCATION_HINT, LOCATIONS, Some("eu")).unwrap_err().to_string();
        assert!(error.starts_with("IFMATCH_LOCATION_HINT is one of wnam, "), "{error}");
    }
}
