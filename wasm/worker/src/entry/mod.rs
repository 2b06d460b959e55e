//! The Worker itself: its events, and what answers them.

mod app;
mod bindings;
mod edge;
mod front;
mod log;
mod r2;
mod recent;
mod settings;

use http::{Method, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_core::problem::Problem;
use ifmatch_store::task::detach;
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{Context, Env, Result, ScheduleContext, ScheduledEvent, event, web_sys};

use crate::tasks;
use edge::response;

/// Before the first request.
#[event(start)]
fn start() {
    log::begin();
    tasks::begin();
}

/// Answers a request.
#[event(fetch)]
async fn fetch(request: web_sys::Request, env: Env, _: Context) -> Result<web_sys::Response> {
    to_the_end(app::answer(request, env)).await
}

/// Removes what is left over, once a day as wrangler.toml has it.
#[event(scheduled)]
async fn scheduled(_: ScheduledEvent, env: Env, _: ScheduleContext) {
    app::collect(&env).await;
}

/// Answers a request though its client leaves. A panic is a 500 of this request only.
async fn to_the_end(answer: impl Future<Output = Result<web_sys::Response>> + 'static) -> Result<web_sys::Response> {
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
