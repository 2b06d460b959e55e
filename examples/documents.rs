//! A JSON document API with two editors. The second one gets 412, re-reads, merges, and saves again. No update is lost.
//!
//! Run it: `cargo run -p ifmatch-examples --example documents`. It starts the server and both editors, and prints their requests.
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use ifmatch::axum::RouterExt;
use ifmatch::{ConditionalLayer, RequirePreconditions};
use serde_json::{Map, Value};
use support::{Answer, Client};

type Document = Map<String, Value>;
type Documents = Arc<Mutex<BTreeMap<String, Document>>>;

async fn read(
    State(documents): State<Documents>,
    Path(name): Path<String>,
) -> Result<Json<Document>, StatusCode> {
    let documents = documents.lock().unwrap_or_else(PoisonError::into_inner);
    documents
        .get(&name)
        .cloned()
        .map(Json)
        .ok_or(StatusCode::NOT_FOUND)
}

async fn write(
    State(documents): State<Documents>,
    Path(name): Path<String>,
    Json(new): Json<Document>,
) -> StatusCode {
    let before = documents
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(name, new);
    if before.is_some() {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::CREATED
    }
}

/// The service. It rejects writes without a condition.
fn app() -> Router {
    let routes = Router::new()
        .route("/documents/{name}", get(read).put(write))
        .with_state(Documents::default());
    let layer = ConditionalLayer::builder()
        .authoritative()
        .require_preconditions(RequirePreconditions::for_writes())
        .build();
    routes.guarded_by(layer)
}

/// An editor with one version of the document, and its tag.
struct Editor {
    name: &'static str,
    client: Client,
    tag: String,
    document: Document,
}

const PATH: &str = "/documents/plan";

impl Editor {
    async fn open(name: &'static str, address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let client = Client::new(address);
        let answer = client.get(PATH, &[]).await;
        println!("{name:>5} reads   {} {}", answer.etag(), answer.text());
        Ok(Self {
            name,
            client,
            tag: answer.etag().to_owned(),
            document: serde_json::from_slice(&answer.body)?,
        })
    }

    /// Saves a change. If another editor was faster, applies the change to the new version and tries again.
    async fn save(&mut self, field: &str, value: &str) -> Result<(), Box<dyn Error>> {
        loop {
            self.document.insert(field.to_owned(), value.into());
            let answer = self.put().await?;
            println!(
                "{:>5} saves   {field}={value}: {}",
                self.name, answer.status
            );
            if answer.status != StatusCode::PRECONDITION_FAILED {
                // The tag of what was saved, for the next save.
                answer.etag().clone_into(&mut self.tag);
                return Ok(());
            }
            let current = self.client.get(PATH, &[]).await;
            println!("{:>5} merges  {}", self.name, current.text());
            self.document = serde_json::from_slice(&current.body)?;
            current.etag().clone_into(&mut self.tag);
        }
    }

    async fn put(&self) -> Result<Answer, Box<dyn Error>> {
        let fields = [
            ("content-type", "application/json"),
            ("if-match", &self.tag),
        ];
        Ok(self
            .client
            .put(PATH, &fields, serde_json::to_vec(&self.document)?)
            .await)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, app()).await });

    let client = Client::new(address);
    let json = ("content-type", "application/json");
    let blind = client.put(PATH, &[json], "{}").await;
    println!("      without a condition: {}", blind.status);
    client
        .put(PATH, &[json, ("if-none-match", "*")], r#"{"title":"Plan"}"#)
        .await
        .expect(201);

    let mut anna = Editor::open("Anna", address).await?;
    let mut bert = Editor::open("Bert", address).await?;
    anna.save("when", "Monday").await?;
    anna.save("when", "Tuesday").await?;
    bert.save("where", "Zurich").await?;

    let document = client.get(PATH, &[]).await.json();
    println!("      in the end: {document}");
    server.abort();
    let expected = serde_json::json!({"title": "Plan", "when": "Tuesday", "where": "Zurich"});
    if document == expected {
        Ok(())
    } else {
        Err("an update was lost".into())
    }
}
