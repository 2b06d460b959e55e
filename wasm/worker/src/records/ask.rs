//! Asks a Durable Object, within a time.

use std::time::Duration;

use ifmatch_store::SystemClock;
use ifmatch_store::task::timeout;
use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::JsValue;
use worker::send::IntoSendFuture;
use worker::{Error, Method, ObjectNamespace, Request, RequestInit};

use super::wire::{self, Answer, Ask};

/// How long an object may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a question is asked that changes nothing. An object that moves elsewhere fails those it was asked meanwhile.
const ATTEMPTS: usize = 3;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// The object was not reached.
    #[error("the Durable Object cannot be reached: {0}")]
    Unreached(String),
    /// The object may have done what it was told.
    #[error("the Durable Object did not answer: {0}")]
    Unanswered(String),
}

/// Asks once.
pub(super) async fn once(objects: &ObjectNamespace, name: &str, ask: &Ask) -> Result<Answer, Trouble> {
    let asked = exchange(objects, name, ask);
    match timeout(&SystemClock, PATIENCE, asked).into_send().await {
        Ok(answer) => answer,
        Err(elapsed) => Err(Trouble::Unanswered(elapsed.to_string())),
    }
}

/// Asks until there is an answer, a few times. Only for what may be done twice.
pub(super) async fn again(objects: &ObjectNamespace, name: &str, ask: &Ask) -> Result<Answer, Trouble> {
    let mut asked = once(objects, name, ask).await;
    for _ in 1..ATTEMPTS {
        if asked.is_ok() {
            break;
        }
        asked = once(objects, name, ask).await;
    }
    asked
}

async fn exchange(objects: &ObjectNamespace, name: &str, ask: &Ask) -> Result<Answer, Trouble> {
    let message = wire::encode(ask).map_err(|error| Trouble::Unreached(error.to_string()))?;
    let request = request(&message).map_err(|error| unreached(&error))?;
    let object = objects.get_by_name(name).map_err(|error| unreached(&error))?;
    let mut response = object.fetch_with_request(request).await.map_err(failed)?;
    let status = response.status_code();
    let answer = response.bytes().await.map_err(failed)?;
    if status != 200 {
        return Err(Trouble::Unanswered(format!("status {status}")));
    }
    wire::decode(&answer).map_err(|error| Trouble::Unanswered(error.to_string()))
}

fn request(message: &[u8]) -> Result<Request, Error> {
    let mut init = RequestInit::new();
    init.with_method(Method::Post).with_body(Some(Uint8Array::from(message).into()));
    // An object has no host: this names what is spoken.
    Request::new_with_init("https://records.ifmatch/", &init)
}

fn unreached(error: &Error) -> Trouble {
    Trouble::Unreached(error.to_string())
}

/// An overloaded object has not looked at the request; for all other errors, nobody knows.
fn failed(error: Error) -> Trouble {
    let text = error.to_string();
    let error = JsValue::from(error);
    let is_overloaded = Reflect::get(&error, &"overloaded".into()).is_ok_and(|flag| flag.is_truthy());
    if is_overloaded { Trouble::Unreached(text) } else { Trouble::Unanswered(text) }
}
