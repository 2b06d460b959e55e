//! Asks a Durable Object, within a time.

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::JsValue;
use worker::ObjectNamespace;
use worker::send::IntoSendFuture;

use super::wire::{self, Answer, Ask};
use crate::glue;
use crate::tasks::allowance::{SPENT, Share};
use crate::tasks::answer::Answer as Told;

/// How long an object may take to answer, in milliseconds.
const PATIENCE: u32 = 10_000;
/// How often a question is asked that changes nothing. An object that moves elsewhere fails those it was asked meanwhile.
const ATTEMPTS: usize = 3;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// The request was not sent to the object.
    #[error("the request was not sent to the Durable Object: {0}")]
    Unasked(String),
    /// The object may have done what it was told.
    #[error("the Durable Object did not answer: {why}")]
    Unanswered {
        /// Message from the runtime.
        why: String,
        /// `true` if the object is overloaded; an immediate retry makes that worse.
        is_overloaded: bool,
    },
}

/// Asks once.
pub(super) async fn once(objects: &ObjectNamespace, name: &str, ask: &Ask) -> Result<Answer, Trouble> {
    let message = wire::encode(ask).map_err(|error| Trouble::Unasked(error.to_string()))?;
    let share = if matches!(ask, Ask::Load | Ask::Swap { .. }) { Share::Reserve } else { Share::Work };
    let asked = Told::to(share, |number| glue::ask(number, PATIENCE, objects.as_ref(), name, &message));
    let (_, answer) = asked.into_send().await.map_err(|error| failed(&error))?;
    wire::decode(&Uint8Array::new(&answer).to_vec())
        .map_err(|error| Trouble::Unanswered { why: error.to_string(), is_overloaded: false })
}

/// Asks until there is an answer, a few times. Only for what may be done twice.
pub(super) async fn again(objects: &ObjectNamespace, name: &str, ask: &Ask) -> Result<Answer, Trouble> {
    let mut asked = once(objects, name, ask).await;
    for _ in 1..ATTEMPTS {
        if !matches!(asked, Err(Trouble::Unanswered { is_overloaded: false, .. })) {
            break;
        }
        asked = once(objects, name, ask).await;
    }
    asked
}

/// Only an answer from the object is definite. Any exception, including that of an overloaded object, may occur after
/// the object carried out the request.
fn failed(error: &JsValue) -> Trouble {
    let why = worker::Error::from(error.clone()).to_string();
    if why.contains(SPENT) {
        return Trouble::Unasked(why);
    }
    let is_overloaded = Reflect::get(error, &"overloaded".into()).is_ok_and(|flag| flag.is_truthy());
    Trouble::Unanswered { why, is_overloaded }
}
