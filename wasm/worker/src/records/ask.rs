//! Asks a Durable Object, within a time.

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::JsValue;
use worker::ObjectNamespace;
use worker::send::IntoSendFuture;

use super::wire::{self, Answer, Ask};
use crate::glue;
use crate::tasks::answer::Answer as Told;

/// How long an object may take to answer, in milliseconds.
const PATIENCE: u32 = 10_000;
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
    let message = wire::encode(ask).map_err(|error| Trouble::Unreached(error.to_string()))?;
    let asked = Told::to(|number| glue::ask(number, PATIENCE, objects.as_ref(), name, &message));
    let (_, answer) = asked.into_send().await.map_err(|error| failed(&error))?;
    wire::decode(&Uint8Array::new(&answer).to_vec()).map_err(|error| Trouble::Unanswered(error.to_string()))
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

/// An overloaded object has not looked at the request; for all other errors, nobody knows.
fn failed(error: &JsValue) -> Trouble {
    let text = worker::Error::from(error.clone()).to_string();
    let is_overloaded = Reflect::get(error, &"overloaded".into()).is_ok_and(|flag| flag.is_truthy());
    if is_overloaded { Trouble::Unreached(text) } else { Trouble::Unanswered(text) }
}
