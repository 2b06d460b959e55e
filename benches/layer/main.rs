//! Sends requests to one service in memory: bare, behind a layer of tower-http, or behind the layer. It prints nothing:
//! `cargo xtask bench layer` counts its instructions.
#![expect(clippy::unwrap_used, reason = "a benchmark stops at an unexpected result")]

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderValue, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::{Parser, ValueEnum};
use ifmatch::axum::RouterExt;
use ifmatch::{ConditionalLayer, EntityTag, ExpectedVersion, PreconditionFailed};
use tower::ServiceExt;
use tower_http::set_header::SetResponseHeaderLayer;

/// Sends requests to a service.
#[derive(Parser)]
struct Options {
    #[arg(value_enum)]
    service: Service,
    #[arg(value_enum)]
    kind: Kind,
    /// Number of requests.
    count: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Service {
    /// The handlers alone.
    Bare,
    /// Behind `SetResponseHeaderLayer`.
    SetHeader,
    /// Behind the layer with its default settings, which hashes what the handlers return.
    Hashing,
    /// Behind the layer. The handlers return their versions, and compare them.
    Versions,
    /// Behind the layer. The handlers return their versions, and all changes pass through the layer, which compares them.
    Authoritative,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Kind {
    Get,
    /// GET of a client that has the current version.
    NotModified,
    /// PUT with the current version in If-Match.
    Put,
    /// A new connection of `axum::serve`, and a GET.
    Connection,
}

/// A text and its version.
type Note = Arc<Mutex<(String, i64)>>;

fn text(note: &Note) -> String {
    note.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
}

async fn read(State(note): State<Note>) -> String {
    text(&note)
}

async fn write(State(note): State<Note>, text: String) {
    note.lock().unwrap_or_else(PoisonError::into_inner).0 = text;
}

async fn read_version(State(note): State<Note>) -> (EntityTag, String) {
    let note = note.lock().unwrap_or_else(PoisonError::into_inner);
    (EntityTag::from(note.1), note.0.clone())
}

async fn write_version(
    State(note): State<Note>,
    expected: ExpectedVersion,
    text: String,
) -> Result<EntityTag, PreconditionFailed> {
    let mut note = note.lock().unwrap_or_else(PoisonError::into_inner);
    expected.check(Some(note.1))?;
    *note = (text, note.1 + 1);
    Ok(EntityTag::from(note.1))
}

impl Service {
    fn router(self) -> Router<Note> {
        let plain = || Router::new().route("/notes/today", get(read).put(write));
        let versions = || Router::new().route("/notes/today", get(read_version).put(write_version));
        match self {
            Self::Bare => plain(),
            Self::SetHeader => {
                let value = HeaderValue::from_static("no-cache");
                plain().layer(SetResponseHeaderLayer::overriding(axum::http::header::CACHE_CONTROL, value))
            }
            Self::Hashing => plain().guarded_by(ConditionalLayer::new()),
            Self::Versions => versions().guarded_by(ConditionalLayer::builder().handlers_check_versions().build()),
            Self::Authoritative => versions().guarded_by(ConditionalLayer::builder().authoritative().build()),
        }
    }

    /// Returns `true` if the service has conditions to evaluate.
    fn is_guarded(self) -> bool {
        !matches!(self, Self::Bare | Self::SetHeader)
    }
}

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let note: Note = Arc::new(Mutex::new(("milk".to_owned(), 1)));
        let router = options.service.router();
        if options.kind == Kind::Connection {
            for _ in 0..options.count {
                // As `axum::serve` does for each connection.
                let connection = router.clone().with_state(Arc::clone(&note));
                assert_eq!(send(&connection, Method::GET, None).await.status(), StatusCode::OK);
            }
            return;
        }
        let router = router.with_state(note);
        let mut tag = send(&router, Method::GET, None).await.headers().get(ETAG).cloned();
        for _ in 0..options.count {
            let condition = tag.clone();
            let response = match options.kind {
                Kind::NotModified => send(&router, Method::GET, condition.map(|tag| (IF_NONE_MATCH, tag))).await,
                Kind::Put => send(&router, Method::PUT, condition.map(|tag| (IF_MATCH, tag))).await,
                Kind::Get | Kind::Connection => send(&router, Method::GET, None).await,
            };
            let expected = match options.kind {
                Kind::NotModified if options.service.is_guarded() => StatusCode::NOT_MODIFIED,
                _ => StatusCode::OK,
            };
            assert_eq!(response.status(), expected);
            assert_eq!(response.headers().contains_key(ETAG), options.service.is_guarded());
            tag = response.headers().get(ETAG).cloned();
        }
    });
}

async fn send(
    router: &Router,
    method: Method,
    condition: Option<(axum::http::HeaderName, HeaderValue)>,
) -> Response {
    let mut request = Request::new(Body::from(if method == Method::PUT { "bread" } else { "" }));
    *request.method_mut() = method;
    *request.uri_mut() = axum::http::Uri::from_static("/notes/today");
    request.headers_mut().extend(condition);
    router.clone().oneshot(request).await.into_response()
}
