//! The smallest service: a note that clients can't overwrite by accident. It runs in one process; `replicas.rs` runs in several.
//!
//! Run it: `cargo run -p ifmatch-examples --example quickstart`, then
//!
//! ```text
//! curl -i localhost:3000/note                                     200 and an ETag
//! curl -i localhost:3000/note -H 'If-None-Match: "<the tag>"'     304
//! curl -i localhost:3000/note -X PUT -d mine -H 'If-Match: "<the tag>"'      200, once
//! curl -i localhost:3000/note -X PUT -d theirs -H 'If-Match: "<the tag>"'    412
//! ```

use std::sync::{Arc, RwLock};

use axum::{Router, extract::State, routing::get};
use ifmatch::{ConditionalLayer, axum::RouterExt};

type Note = Arc<RwLock<String>>;

async fn read(State(note): State<Note>) -> String {
    note.read().map(|note| note.clone()).unwrap_or_default()
}

async fn write(State(note): State<Note>, text: String) {
    if let Ok(mut note) = note.write() {
        *note = text;
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let routes = Router::new()
        .route("/note", get(read).put(write))
        .guarded_by(ConditionalLayer::new());
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, routes.with_state(Note::default())).await
}
