//! A typical service: a team's notes in SQLite, as JSON, with pagination, authentication, compression, CORS and tracing. No client
//! overwrites what it hasn't seen, and neither does the job that writes to the table directly.
//!
//! docs/howto/axum.md explains it step by step. Run it with `cargo run --example notes`, and open <http://127.0.0.1:3000> in two
//! windows: the page is an editor that merges (docs/browsers.md).
#![allow(clippy::print_stderr, reason = "it is a demonstration")]

use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION, RETRY_AFTER,
};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ifmatch::axum::RouterExt;
use ifmatch::{
    ConditionalLayer, EntityTag, ExpectedVersion, PreconditionFailed, RequirePreconditions,
};
use serde::{Deserialize, Serialize};
use sqlx::{Row, SqlitePool, query};
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::trace::TraceLayer;

#[derive(Serialize, Deserialize)]
struct Note {
    title: String,
    text: String,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    after: i64,
}

async fn list(
    State(db): State<SqlitePool>,
    Query(page): Query<Page>,
) -> Result<Json<Vec<(i64, String)>>, AppError> {
    let rows =
        query("SELECT id, title FROM notes WHERE id > ? ORDER BY id LIMIT 100").bind(page.after);
    let rows = rows.fetch_all(&db).await?;
    Ok(Json(
        rows.iter()
            .map(|row| (row.get("id"), row.get("title")))
            .collect(),
    ))
}

async fn create(
    State(db): State<SqlitePool>,
    Json(note): Json<Note>,
) -> Result<(StatusCode, [(HeaderName, String); 1], EntityTag), AppError> {
    let insert = query("INSERT INTO notes (title, text, version) VALUES (?, ?, 1)")
        .bind(note.title)
        .bind(note.text);
    let id = insert.execute(&db).await?.last_insert_rowid();
    Ok((
        StatusCode::CREATED,
        [(LOCATION, format!("/v1/notes/{id}"))],
        EntityTag::from(1),
    ))
}

async fn read(
    State(db): State<SqlitePool>,
    Path(id): Path<i64>,
) -> Result<(EntityTag, Json<Note>), AppError> {
    let row = query("SELECT title, text, version FROM notes WHERE id = ?")
        .bind(id)
        .fetch_optional(&db)
        .await?;
    let row = row.ok_or(AppError::NotFound)?;
    let note = Note {
        title: row.get("title"),
        text: row.get("text"),
    };
    Ok((EntityTag::from(row.get::<i64, _>("version")), Json(note)))
}

async fn save(
    State(db): State<SqlitePool>,
    Path(id): Path<i64>,
    expected: ExpectedVersion,
    Json(note): Json<Note>,
) -> Result<EntityTag, AppError> {
    let update = "UPDATE notes SET title = ?, text = ?, version = version + 1
        WHERE id = ? AND version = coalesce(?, version) RETURNING version";
    let update = query(update)
        .bind(note.title)
        .bind(note.text)
        .bind(id)
        .bind(expected.of_row::<i64>()?);
    let row = update
        .fetch_optional(&db)
        .await?
        .ok_or(PreconditionFailed)?;
    Ok(EntityTag::from(row.get::<i64, _>("version")))
}

async fn delete(
    State(db): State<SqlitePool>,
    Path(id): Path<i64>,
    expected: ExpectedVersion,
) -> Result<StatusCode, AppError> {
    let delete =
        query("DELETE FROM notes WHERE id = ? AND version = coalesce(?, version)").bind(id);
    let deleted = delete
        .bind(expected.of_row::<i64>()?)
        .execute(&db)
        .await?
        .rows_affected();
    if deleted == 0 {
        Err(PreconditionFailed.into())
    } else {
        Ok(StatusCode::NO_CONTENT)
    }
}

/// Drafts have names that their authors choose, so PUT creates or replaces. A random version never recurs, not even for a name that was
/// deleted and is used again.
async fn read_draft(
    State(db): State<SqlitePool>,
    Path(name): Path<String>,
) -> Result<(EntityTag, String), AppError> {
    let row = query("SELECT text, version FROM drafts WHERE name = ?")
        .bind(name)
        .fetch_optional(&db)
        .await?;
    let row = row.ok_or(AppError::NotFound)?;
    Ok((
        EntityTag::from(row.get::<i64, _>("version")),
        row.get("text"),
    ))
}

async fn save_draft(
    State(db): State<SqlitePool>,
    Path(name): Path<String>,
    expected: ExpectedVersion,
    text: String,
) -> Result<EntityTag, AppError> {
    let statement = match expected {
        ExpectedVersion::Absent => {
            "INSERT INTO drafts VALUES (?1, ?2, random()) ON CONFLICT DO NOTHING RETURNING version"
        }
        ExpectedVersion::Tag(_) => {
            "UPDATE drafts SET text = ?2, version = random() WHERE name = ?1 AND version = ?3 RETURNING version"
        }
        ExpectedVersion::Any => {
            "INSERT INTO drafts VALUES (?1, ?2, random())
             ON CONFLICT (name) DO UPDATE SET text = excluded.text, version = excluded.version RETURNING version"
        }
    };
    let save = query(statement)
        .bind(name)
        .bind(text)
        .bind(expected.version::<i64>()?);
    let row = save.fetch_optional(&db).await?.ok_or(PreconditionFailed)?;
    Ok(EntityTag::from(row.get::<i64, _>("version")))
}

enum AppError {
    NotFound,
    Stale,
    Database,
}

impl From<PreconditionFailed> for AppError {
    fn from(_: PreconditionFailed) -> Self {
        Self::Stale
    }
}

impl From<sqlx::Error> for AppError {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("the database failed: {error}");
        Self::Database
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                problem("not-found", Some("there is no such note")),
            )
                .into_response(),
            Self::Stale => PreconditionFailed.into_response(),
            Self::Database => {
                (StatusCode::SERVICE_UNAVAILABLE, problem("database", None)).into_response()
            }
        }
    }
}

/// The body of every error of this service.
fn problem(code: &str, message: Option<&str>) -> Json<serde_json::Value> {
    Json(serde_json::json!({ "error": { "code": code, "message": message } }))
}

async fn authenticate(request: Request, next: Next) -> Response {
    if request
        .headers()
        .get(AUTHORIZATION)
        .is_some_and(|token| token == "Bearer secret")
    {
        return next.run(request).await;
    }
    (StatusCode::UNAUTHORIZED, problem("unauthorized", None)).into_response()
}

fn layer() -> ConditionalLayer {
    ConditionalLayer::builder()
        .handlers_check_versions()
        .behind_compression()
        .require_preconditions(RequirePreconditions::for_writes())
        .error_body(|error| {
            let Json(body) = problem(error.name(), error.message());
            (
                axum::http::HeaderValue::from_static("application/json"),
                body.to_string().into(),
            )
        })
        .build()
}

fn app(db: SqlitePool) -> Router {
    let notes = Router::new()
        .route("/notes", get(list).post(create))
        .route("/notes/{id}", get(read).put(save).delete(delete))
        .route("/drafts/{name}", get(read_draft).put(save_draft))
        .guarded_by(layer())
        .route_layer(from_fn(authenticate));
    Router::new()
        .route("/health", get(async || "well"))
        .nest("/v1", notes)
        .layer(CompressionLayer::new())
        .layer(
            CorsLayer::permissive()
                .allow_headers([AUTHORIZATION, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH])
                .expose_headers([ETAG, LOCATION, RETRY_AFTER]),
        )
        .layer(TraceLayer::new_for_http())
        .with_state(db)
}

/// The editor, and the client of the npm package, in one file.
fn page() -> Router {
    let script =
        |text: &'static str| get(async move || ([(CONTENT_TYPE, "text/javascript")], text));
    Router::new()
        .route("/", get(async || Html(include_str!("notes/page.html"))))
        .route("/client.js", script(include_str!("notes/client.js")))
        .route("/merge.js", script(include_str!("notes/merge.js")))
}

/// A job, in this program or another, that writes to the table directly. It changes the version, as every writer of the
/// table must.
async fn sign_notes(db: SqlitePool) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let unsigned = "UPDATE notes SET text = text || char(10) || '(the team)', version = version + 1 WHERE text NOT LIKE '%(the team)'";
        if let Err(error) = query(unsigned).execute(&db).await {
            eprintln!("the job failed: {error}");
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let database = args
        .next()
        .unwrap_or_else(|| "sqlite:notes.db?mode=rwc".to_owned());
    let db = SqlitePool::connect(&database).await?;
    let table = "CREATE TABLE IF NOT EXISTS notes
        (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, text TEXT NOT NULL, version INTEGER NOT NULL)";
    query(table).execute(&db).await?;
    let drafts = "CREATE TABLE IF NOT EXISTS drafts (name TEXT PRIMARY KEY, text TEXT NOT NULL, version INTEGER NOT NULL)";
    query(drafts).execute(&db).await?;
    tokio::spawn(sign_notes(db.clone()));
    axum::serve(
        tokio::net::TcpListener::bind(address).await?,
        app(db).merge(page()),
    )
    .await?;
    Ok(())
}
