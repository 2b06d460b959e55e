//! The namespace of the Durable Objects, where Cloudflare places them, and requests to one.

use js_sys::{Function, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use worker::send::IntoSendFuture;
use worker::{Env, Error, Method, ObjectNamespace, Request, RequestInit, Result, Stub};

use super::wire::{self, ObjectRequest, ObjectResponse};
use crate::bindings;
use crate::tasks::subrequests::{self, BudgetShare};
use crate::tasks::timeout;

/// Name of the Durable Object namespace.
const RECORDS: &str = "RECORDS";
/// Setting of the jurisdiction.
const JURISDICTION: &str = "IFMATCH_JURISDICTION";
/// Setting of the location hint.
const LOCATION_HINT: &str = "IFMATCH_LOCATION_HINT";

const JURISDICTIONS: &[&str] = &["eu", "us", "fedramp", "fedramp-high"];
const LOCATIONS: &[&str] = &[
    "wnam", "enam", "sam", "weur", "eeur", "apac", "apac-ne", "apac-se", "oc", "afr", "me",
];

/// Time limit for a response, in milliseconds.
const TIMEOUT: u32 = 10_000;
/// Attempts at a request that is safe to repeat. An object that is being moved fails the requests sent meanwhile.
const ATTEMPTS: usize = 3;
/// URL of all requests. Its host is a placeholder: a stub sends them to its object.
const URL: &str = "https://records.ifmatch/";

/// The Durable Objects of the records, in the jurisdiction and near the location of the settings.
#[derive(Clone, Debug)]
pub(super) struct RecordNamespace {
    namespace: ObjectNamespace,
    hint: Option<&'static str>,
}

/// A setting is none of the known names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} must be one of {}", .known.join(", "))]
struct UnknownName {
    setting: &'static str,
    known: &'static [&'static str],
}

impl RecordNamespace {
    /// Opens the namespace. The Worker and the objects have the same settings, and so mean the same objects.
    ///
    /// # Errors
    /// The error says what wrangler.toml needs.
    pub(super) fn open(env: &Env) -> Result<Self> {
        let namespace = env.durable_object(RECORDS).map_err(|error| {
            let how =
                "[[durable_objects.bindings]] with name = \"RECORDS\" and class_name = \"Records\"";
            bindings::missing(RECORDS, "a Durable Object namespace", how, &error)
        })?;
        let setting = |setting, known| {
            one_of(setting, known, bindings::variable(env, setting).as_deref())
                .map_err(|error| Error::RustError(error.to_string()))
        };
        let hint = setting(LOCATION_HINT, LOCATIONS)?;
        match setting(JURISDICTION, JURISDICTIONS)? {
            Some(jurisdiction) => Ok(Self {
                namespace: within(&namespace, jurisdiction)?,
                hint,
            }),
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
    let restrict: Function =
        Reflect::get(namespace.as_ref(), &"jurisdiction".into())?.unchecked_into();
    let part = restrict.call1(namespace.as_ref(), &JsValue::from(jurisdiction));
    let part = part.map_err(|error| {
        let why = Error::from(error);
        Error::RustError(format!(
            "{JURISDICTION}: this runtime cannot place objects in a jurisdiction: \
             deploy the Worker, or remove the setting ({why})"
        ))
    })?;
    Ok(part.unchecked_into())
}

/// Returns the known name that a setting has, or `None` if it isn't set.
fn one_of(
    setting: &'static str,
    known: &'static [&'static str],
    value: Option<&str>,
) -> Result<Option<&'static str>, UnknownName> {
    let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    known
        .iter()
        .find(|name| **name == value)
        .copied()
        .map(Some)
        .ok_or(UnknownName { setting, known })
}

/// Reason for a missing response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestFailure {
    /// The request wasn't sent.
    #[error("the request was not sent to the Durable Object: {0}")]
    Unsent(String),
    /// The object may have carried out the request.
    #[error("the Durable Object did not answer: {why}")]
    Unanswered {
        /// Message from the runtime.
        why: String,
        /// `true` if the object is overloaded; an immediate retry makes that worse.
        is_overloaded: bool,
    },
}

/// Sends a request once.
pub(super) async fn once(
    namespace: &RecordNamespace,
    name: &str,
    ask: &ObjectRequest,
) -> Result<ObjectResponse, RequestFailure> {
    let message = wire::encode(ask).map_err(|error| RequestFailure::Unsent(error.to_string()))?;
    let share = if matches!(ask, ObjectRequest::Swap { .. }) {
        BudgetShare::Reserve
    } else {
        BudgetShare::Work
    };
    subrequests::take(share).map_err(|spent| RequestFailure::Unsent(spent.to_string()))?;
    let answer = timeout(TIMEOUT, fetch(namespace, name, &message))
        .into_send()
        .await;
    let answer = answer
        .map_err(|late| unanswered(&late))?
        .map_err(|error| failed(&error))?;
    wire::decode(&answer).map_err(|error| unanswered(&error))
}

/// Sends a request that is safe to repeat, a few times if necessary.
pub(super) async fn again(
    namespace: &RecordNamespace,
    name: &str,
    ask: &ObjectRequest,
) -> Result<ObjectResponse, RequestFailure> {
    let mut answer = once(namespace, name, ask).await;
    for _ in 1..ATTEMPTS {
        if !matches!(
            answer,
            Err(RequestFailure::Unanswered {
                is_overloaded: false,
                ..
            })
        ) {
            break;
        }
        answer = once(namespace, name, ask).await;
    }
    answer
}

async fn fetch(namespace: &RecordNamespace, name: &str, message: &[u8]) -> Result<Vec<u8>> {
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_body(Some(Uint8Array::from(message).into()));
    let request = Request::new_with_init(URL, &init)?;
    let mut response = namespace.stub(name)?.fetch_with_request(request).await?;
    match response.status_code() {
        200 => response.bytes().await,
        status => Err(Error::RustError(format!("status {status}"))),
    }
}

fn unanswered(why: &impl ToString) -> RequestFailure {
    RequestFailure::Unanswered {
        why: why.to_string(),
        is_overloaded: false,
    }
}

/// Only a response from the object is definite. Any exception, even an overloaded object's, may occur after
/// the object carried out the request.
fn failed(error: &Error) -> RequestFailure {
    let flag = Reflect::get(&error.to_js_value(), &"overloaded".into());
    RequestFailure::Unanswered {
        why: error.to_string(),
        is_overloaded: flag.is_ok_and(|flag| flag.is_truthy()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_accepted() {
        let jurisdiction = |value| one_of(JURISDICTION, JURISDICTIONS, value);
        for (value, expected) in [
            (None, None),
            (Some(" "), None),
            (Some(" eu "), Some("eu")),
            (Some("fedramp"), Some("fedramp")),
        ] {
            assert_eq!(jurisdiction(value).unwrap(), expected, "{value:?}");
        }
        for value in ["EU", "eu,us", "europe", "weur"] {
            let error = jurisdiction(Some(value)).unwrap_err();
            assert_eq!(
                error.to_string(),
                "IFMATCH_JURISDICTION must be one of eu, us, fedramp, fedramp-high"
            );
        }
        let error = one_of(LOCATION_HINT, LOCATIONS, Some("eu"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("IFMATCH_LOCATION_HINT must be one of wnam, "),
            "{error}"
        );
    }
}
