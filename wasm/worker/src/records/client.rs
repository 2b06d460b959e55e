//! Requests to a Durable Object.

use js_sys::{Reflect, Uint8Array};
use worker::send::IntoSendFuture;
use worker::{Error, Method, Request, RequestInit, Result as WorkerResult};

use super::objects::Objects;
use super::wire::{self, Answer, Ask};
use crate::tasks::subrequests::{self, Share};
use crate::tasks::timeout;

/// Time limit for an answer, in milliseconds.
const TIMEOUT: u32 = 10_000;
/// Attempts at a request that is safe to repeat. An object that is being moved fails the requests sent meanwhile.
const ATTEMPTS: usize = 3;
/// The object's name says all there is to say: requests to it need no host.
const URL: &str = "https://records.ifmatch/";

/// Reason for a missing answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// The request was not sent.
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
pub(super) async fn once(objects: &Objects, name: &str, ask: &Ask) -> Result<Answer, Trouble> {
    let message = wire::encode(ask).map_err(|error| Trouble::Unsent(error.to_string()))?;
    let share = if matches!(ask, Ask::Swap { .. }) { Share::Reserve } else { Share::Work };
    subrequests::take(share).map_err(|spent| Trouble::Unsent(spent.to_string()))?;
    let answer = timeout(TIMEOUT, fetch(objects, name, &message)).into_send().await;
    let answer = answer.map_err(|late| unanswered(&late))?.map_err(|error| failed(&error))?;
    wire::decode(&answer).map_err(|error| unanswered(&error))
}

/// Sends a request that is safe to repeat, a few times if necessary.
pub(super) async fn again(objects: &Objects, name: &str, ask: &Ask) -> Result<Answer, Trouble> {
    let mut answer = once(objects, name, ask).await;
    for _ in 1..ATTEMPTS {
        if !matches!(answer, Err(Trouble::Unanswered { is_overloaded: false, .. })) {
            break;
        }
        answer = once(objects, name, ask).await;
    }
    answer
}

async fn fetch(objects: &Objects, name: &str, message: &[u8]) -> WorkerResult<Vec<u8>> {
    let mut init = RequestInit::new();
    init.with_method(Method::Post).with_body(Some(Uint8Array::from(message).into()));
    let request = Request::new_with_init(URL, &init)?;
    let mut response = objects.stub(name)?.fetch_with_request(request).await?;
    match response.status_code() {
        200 => response.bytes().await,
        status => Err(Error::RustError(format!("status {status}"))),
    }
}

fn unanswered(why: &impl ToString) -> Trouble {
    Trouble::Unanswered { why: why.to_string(), is_overloaded: false }
}

/// Only an answer from the object is definite. Any exception, including that of an overloaded object, may occur after
/// the object carried out the request.
fn failed(error: &Error) -> Trouble {
    let flag = Reflect::get(&error.to_js_value(), &"overloaded".into());
    Trouble::Unanswered { why: error.to_string(), is_overloaded: flag.is_ok_and(|flag| flag.is_truthy()) }
}
