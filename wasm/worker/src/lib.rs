//! The ifmatch blob service as a Cloudflare Worker: bodies in R2, records in Durable Objects.
//!
//! It is the service of the native gateway, and makes the same decisions with the same code. What is here are the
//! bindings: an object store on R2 ([`r2`]), a register on Durable Objects ([`records`]), requests and responses of the
//! runtime ([`edge`]), and the settings.

mod app;
mod bindings;
mod edge;
mod front;
mod log;
mod r2;
mod records;
mod settings;
mod tasks;

pub use records::object::Records;

use worker::{Context, Env, Result, event, web_sys};

/// Before the first request.
#[event(start)]
fn start() {
    log::begin();
    tasks::begin();
}

/// Answers a request.
#[event(fetch)]
async fn fetch(request: web_sys::Request, env: Env, _: Context) -> Result<web_sys::Response> {
    tasks::to_the_end(app::answer(request, env)).await
}
