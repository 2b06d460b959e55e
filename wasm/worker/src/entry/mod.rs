//! The Worker's event handlers.

mod app;
mod edge;
mod front;
mod held;
mod log;
mod loopback;
mod metadata_cache;
mod r2;
mod settings;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use http::{Method, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_core::problem::Problem;
use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::{Env, Result, event, web_sys};

use crate::tasks;

/// Runs before the first request.
#[event(start)]
fn start() {
    log::begin();
    tasks::begin();
}

/// Answers a request. A client that disconnects doesn't stop it.
#[wasm_bindgen]
#[allow(unreachable_pub, reason = "the runtime calls it")]
pub fn fetch(request: web_sys::Request, env: Env, _context: JsValue) -> Promise {
    let answer = async { Ok(web_sys::Response::from(answer(request, env).await?).into()) };
    tasks::run_to_completion(answer)
}

/// Removes unreachable entries, once a day by the cron trigger in wrangler.toml.
#[wasm_bindgen]
#[allow(unreachable_pub, reason = "the runtime calls it")]
pub fn scheduled(_event: JsValue, env: Env, _context: JsValue) -> Promise {
    tasks::run_to_completion(async move {
        app::collect(&env).await;
        Ok(JsValue::UNDEFINED)
    })
}

/// Answers a request. A panic fails only this request, with 500.
async fn answer(request: web_sys::Request, env: Env) -> Result<worker::Response> {
    AssertUnwindSafe(app::answer(request, env))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| panicked())
}

fn panicked() -> Result<worker::Response> {
    let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal-error")
        .detail("the request failed unexpectedly: the Worker's log has the reason");
    let response: Response<BlobBody> = problem.to_response().map(BlobBody::from);
    edge::to_js(&Method::GET, response)
}
