//! Notes behind axum in a Cloudflare Worker. One layer adds strong tags and 304s, and prevents lost updates.
//!
//! The handlers know nothing about tags. Of two editors with the same version, the second gets 412, in any isolate and data centre: the
//! records are Durable Objects.

use std::cell::OnceCell;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::routing::get;
use http::{Response, StatusCode};
use ifmatch::ConditionalLayer;
use ifmatch_worker::RecordObjects;
use tower_service::Service;
use worker::send::SendWrapper;
use worker::{Bucket, Context, Env, HttpRequest, Result, event};

/// The Durable Object class in wrangler.toml.
pub use ifmatch_worker::Records;

/// The bucket of notes.
#[derive(Clone)]
struct Notes(SendWrapper<Bucket>);

thread_local! {
    /// One per isolate, so all requests share the layer's memory.
    static APP: OnceCell<Router> = const { OnceCell::new() };
}

/// Lets writes continue after their client disconnects.
#[event(start)]
fn start() {
    ifmatch_worker::tasks::begin();
}

#[event(fetch)]
async fn fetch(request: HttpRequest, env: Env, _: Context) -> Result<Response<Body>> {
    let mut app = match APP.with(|app| app.get().cloned()) {
        Some(app) => app,
        None => open(&env)?,
    };
    match app.call(request).await {
        Ok(response) => Ok(response),
        Err(never) => match never {},
    }
}

fn open(env: &Env) -> Result<Router> {
    let records = RecordObjects::open(env)?;
    let notes = Notes(SendWrapper::new(env.bucket("NOTES")?));
    let routes = Router::new().route("/notes/{name}", get(read).put(write).delete(remove)).with_state(notes);
    let layer = ConditionalLayer::builder().register(records).build();
    let app = Router::new().fallback_service(tower_layer::Layer::layer(&layer, routes));
    Ok(APP.with(|cell| cell.get_or_init(|| app).clone()))
}

#[worker::send]
async fn read(State(notes): State<Notes>, Path(name): Path<String>) -> Result<Vec<u8>, StatusCode> {
    let note = notes.0.get(name).execute().await.map_err(|error| unavailable(&error))?.ok_or(StatusCode::NOT_FOUND)?;
    let body = note.body().ok_or(StatusCode::NOT_FOUND)?;
    body.bytes().await.map_err(|error| unavailable(&error))
}

#[worker::send]
async fn write(State(notes): State<Notes>, Path(name): Path<String>, text: Bytes) -> Result<(), StatusCode> {
    notes.0.put(name, text.to_vec()).execute().await.map_err(|error| unavailable(&error))?;
    Ok(())
}

#[worker::send]
async fn remove(State(notes): State<Notes>, Path(name): Path<String>) -> Result<StatusCode, StatusCode> {
    notes.0.delete(name).await.map_err(|error| unavailable(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn unavailable(error: &worker::Error) -> StatusCode {
    worker::console_error!("R2: {error}");
    StatusCode::SERVICE_UNAVAILABLE
}
