//! The Worker itself: its events, and what answers them.

mod app;
mod bindings;
mod edge;
mod front;
mod held;
mod log;
mod loopback;
mod r2;
mod recent;
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
use edge::response;

/// Before the first request.
#[event(start)]
fn start() {
    log::begin();
    tasks::begin();
}

/// Answers a request, though its client leaves.
#[wasm_bindgen]
#[allow(unreachable_pub, reason = "the runtime reaches it")]
pub fn fetch(request: web_sys::Request, env: Env, _context: JsValue) -> Promise {
    let answer = async { answer(request, env).await.map(JsValue::from).map_err(JsValue::from) };
    tasks::to_the_end(answer)
}

/// Removes what is left over, once a day as wrangler.toml has it.
#[wasm_bindgen]
#[allow(unreachable_pub, reason = "the runtime reaches it")]
pub fn scheduled(_event: JsValue, env: Env, _context: JsValue) -> Promise {
    tasks::to_the_end(async move {
        app::collect(&env).await;
        Ok(JsValue::UNDEFINED)
    })
}

/// The answer. A panic is a 500 of this request only.
async fn answer(request: web_sys::Request, env: Env) -> Result<web_sys::Response> {
    AssertUnwindSafe(app::answer(request, env)).catch_unwind().await.unwrap_or_else(|_| panicked())
}

fn panicked() -> Result<web_sys::Response> {
    let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal-error")
        .detail("the request could not be answered: the log says why");
    let response: Response<BlobBody> = problem.to_response().map(BlobBody::from);
    response::to_js(&Method::GET, response)
}
