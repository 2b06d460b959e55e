//! A service that counts its conflicts by route: where writers keep hitting conflicts, and how long they waited.
//!
//! Run it: `cargo run -p ifmatch-examples --example conflicts -- 127.0.0.1:3000`, write `/notes/a` twice with one tag, and
//! get `/conflicts`.
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use ifmatch::axum::RouterExt;
use ifmatch::{ConditionalLayer, Event, Observer};
use serde::Serialize;

type Notes = Arc<Mutex<BTreeMap<String, String>>>;

/// Rejected writes by route and reason. There are few routes, so clients can't fill the memory.
#[derive(Clone, Default)]
struct Conflicts(Arc<Mutex<BTreeMap<String, Conflict>>>);

#[derive(Clone, Default, Serialize)]
struct Conflict {
    count: u64,
    /// The longest time until the response, in microseconds.
    longest: u128,
}

impl Observer for Conflicts {
    fn on_event(&self, event: &Event<'_>) {
        let Event {
            decision,
            method,
            uri,
            duration,
            ..
        } = event;
        if !matches!(
            decision.status(),
            StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED
        ) {
            return;
        }
        // The layer answers before the router has matched the path.
        let route = if uri.path().starts_with("/notes/") {
            "/notes/{id}"
        } else {
            "other"
        };
        let mut conflicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let conflict = conflicts
            .entry(format!("{method} {route} {}", decision.reason()))
            .or_default();
        conflict.count += 1;
        conflict.longest = conflict.longest.max(duration.as_micros());
    }
}

async fn read(State(notes): State<Notes>, Path(id): Path<String>) -> Result<String, StatusCode> {
    notes
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&id)
        .cloned()
        .ok_or(StatusCode::NOT_FOUND)
}

async fn write(State(notes): State<Notes>, Path(id): Path<String>, text: String) {
    notes
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(id, text);
}

async fn show(State(conflicts): State<Conflicts>) -> Json<BTreeMap<String, Conflict>> {
    Json(
        conflicts
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let conflicts = Conflicts::default();
    let layer = ConditionalLayer::builder()
        .observer(conflicts.clone())
        .build();
    let notes = Router::new()
        .route("/notes/{id}", get(read).put(write))
        .with_state(Notes::default());
    let app = Router::new()
        .route("/conflicts", get(show))
        .with_state(conflicts)
        .merge(notes.guarded_by(layer));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("http://{}/conflicts", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
