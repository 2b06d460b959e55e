//! Work that is done to its end, whatever becomes of the client and of the request.

use std::panic::AssertUnwindSafe;

use http::{Method, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_core::problem::Problem;
use ifmatch_store::task::{detach, spawn_by};
use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::future_to_promise;
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{Result, web_sys};

use crate::edge::response;

#[wasm_bindgen(module = "cloudflare:workers")]
extern "C" {
    /// Has the runtime wait for a promise before it ends what the request began.
    #[wasm_bindgen(js_name = waitUntil)]
    fn wait_until(promise: &Promise);
}

/// Has the runtime wait for detached work, and log what panics.
pub(crate) fn begin() {
    std::panic::set_hook(Box::new(|panic| worker::console_error!("ifmatch: {panic}")));
    spawn_by(|work| {
        let work = async move {
            work.await;
            Ok(JsValue::UNDEFINED)
        };
        wait_until(&future_to_promise(AssertUnwindSafe(work)));
    });
}

/// Answers a request though its client leaves. A panic is a 500 of this request only.
pub(crate) async fn to_the_end(
    answer: impl Future<Output = Result<web_sys::Response>> + 'static,
) -> Result<web_sys::Response> {
    let answer = async { SendWrapper::new(answer.await) }.into_send();
    match detach(answer).result().await {
        Some(SendWrapper(answer)) => answer,
        None => panicked(),
    }
}

fn panicked() -> Result<web_sys::Response> {
    let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal-error")
        .detail("the request could not be answered: the log says why");
    let response: Response<BlobBody> = problem.to_response().map(BlobBody::from);
    response::to_js(&Method::GET, response)
}
