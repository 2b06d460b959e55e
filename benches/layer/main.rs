//! Sends requests to one service in memory: bare, behind a layer of tower-http, or behind the layer. It prints nothing:
//! `cargo xtask bench layer` counts its instructions.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
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
    /// GET as the first request of a connection of `axum::serve`.
    Connection,
}

/// A text and its version.
static NOTE: Mutex<(String, i64)> = Mutex::new((String::new(), 1));

fn note() -> MutexGuard<'static, (String, i64)> {
    NOTE.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read() -> String {
    note().0.clone()
}

async fn write(text: String) {
    note().0 = text;
}

async fn read_version() -> (EntityTag, String) {
    let note = note();
    (EntityTag::from(note.1), note.0.clone())
}

async fn write_version(
    expected: ExpectedVersion,
    text: String,
) -> Result<EntityTag, PreconditionFailed> {
    let mut note = note();
    expected.check(Some(note.1))?;
    *note = (text, note.1 + 1);
    Ok(EntityTag::from(note.1))
}

impl Service {
    fn router(self) -> Router {
        let plain = || Router::new().route("/notes/today", get(read).put(write));
        let versions = || Router::new().route("/notes/today", get(read_version).put(write_version));
        match self {
            Self::Bare => plain(),
            Self::SetHeader => {
                let value = HeaderValue::from_static("no-cache");
                plain().layer(SetResponseHeaderLayer::overriding(CACHE_CONTROL, value))
            }
            Self::Hashing => plain().guarded_by(ConditionalLayer::new()),
            Self::Versions => versions().guarded_by(
                ConditionalLayer::builder()
                    .handlers_check_versions()
                    .build(),
            ),
            Self::Authoritative => {
                versions().guarded_by(ConditionalLayer::builder().authoritative().build())
            }
        }
    }

    /// Returns `true` if the service has conditions to evaluate.
    fn is_guarded(self) -> bool {
        !matches!(self, Self::Bare | Self::SetHeader)
    }
}

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        note().0 = "milk".to_owned();
        let router = options.service.router();
        if options.kind == Kind::Connection {
            for _ in 0..options.count {
                // As `axum::serve` does for each connection.
                let connection = router.clone().with_state(());
                assert_eq!(
                    send(&connection, Method::GET, None).await.status(),
                    StatusCode::OK
                );
            }
            return;
        }
        let router = router.with_state(());
        let mut tag = send(&router, Method::GET, None)
            .await
            .headers()
            .get(ETAG)
            .cloned();
        for _ in 0..options.count {
            let condition = tag.clone();
            let response = match options.kind {
                Kind::NotModified => {
                    send(
                        &router,
                        Method::GET,
                        condition.map(|tag| (IF_NONE_MATCH, tag)),
                    )
                    .await
                }
                Kind::Put => send(&router, Method::PUT, condition.map(|tag| (IF_MATCH, tag))).await,
                Kind::Get | Kind::Connection => send(&router, Method::GET, None).await,
            };
            let expected = match options.kind {
                Kind::NotModified if options.service.is_guarded() => StatusCode::NOT_MODIFIED,
                _ => StatusCode::OK,
            };
            assert_eq!(response.status(), expected);
            assert_eq!(
                response.headers().contains_key(ETAG),
                options.service.is_guarded()
            );
            tag = response.headers().get(ETAG).cloned();
        }
    });
}

async fn send(
    router: &Router,
    method: Method,
    condition: Option<(HeaderName, HeaderValue)>,
) -> Response {
    let mut request = Request::new(Body::from(if method == Method::PUT { "bread" } else { "" }));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from_static("/notes/today");
    request.headers_mut().extend(condition);
    router.clone().oneshot(request).await.into_response()
}
