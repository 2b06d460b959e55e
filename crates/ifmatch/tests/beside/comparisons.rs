//! What tower-http and 18 lines by hand do with conditions: the cells of docs/comparisons.md that need a test.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use ifmatch::ConditionalLayer;
use tower::{Layer, Service, ServiceExt};
use tower_http::compression::CompressionLayer;
use tower_http::services::ServeDir;

type Row = Arc<Mutex<(u64, String)>>;

/// The version by hand: `SELECT body, version`, and `UPDATE … SET version = version + 1 WHERE version = ?`.
fn by_hand() -> Router {
    async fn read(State(row): State<Row>) -> impl IntoResponse {
        let (version, body) = row.lock().expect("the row").clone();
        ([(ETAG, format!("\"{version}\""))], body)
    }
    async fn write(
        State(row): State<Row>,
        headers: HeaderMap,
        body: String,
    ) -> Result<impl IntoResponse, StatusCode> {
        let tag = headers
            .get(IF_MATCH)
            .and_then(|tag| tag.to_str().ok())
            .ok_or(StatusCode::PRECONDITION_REQUIRED)?;
        let expected: Result<u64, _> = tag.trim_matches('"').parse();
        let mut row = row.lock().expect("the row");
        if expected != Ok(row.0) {
            return Err(StatusCode::PRECONDITION_FAILED);
        }
        *row = (row.0 + 1, body);
        Ok((StatusCode::NO_CONTENT, [(ETAG, format!("\"{}\"", row.0))]))
    }
    let row = Row::new(Mutex::new((1, "text ".repeat(200))));
    Router::new()
        .route("/a", get(read).put(write))
        .with_state(row)
}

/// The same note without a version, behind the layer.
fn layered() -> Router {
    async fn read(State(text): State<Arc<Mutex<String>>>) -> String {
        text.lock().expect("the text").clone()
    }
    async fn write(State(text): State<Arc<Mutex<String>>>, body: String) {
        *text.lock().expect("the text") = body;
    }
    let text = Arc::new(Mutex::new("text ".repeat(200)));
    let routes = Router::new()
        .route("/a", get(read).put(write))
        .with_state(text);
    Router::new()
        .fallback_service(ConditionalLayer::new().layer(routes.layer(CompressionLayer::new())))
}

async fn ask<S, B>(
    service: &S,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
) -> (u16, String, usize)
where
    S: Service<Request<Body>, Response = http::Response<B>, Error: std::fmt::Debug> + Clone,
    B: HttpBody<Error: std::fmt::Debug>,
{
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from("new")).expect("a request");
    let (head, body) = service
        .clone()
        .oneshot(request)
        .await
        .expect("an answer")
        .into_parts();
    let tag = head
        .headers
        .get(ETAG)
        .map(|tag| tag.to_str().expect("text").to_owned())
        .unwrap_or_default();
    let len = body.collect().await.expect("a body").to_bytes().len();
    (head.status.as_u16(), tag, len)
}

#[tokio::test]
async fn tower_http_serves_conditional_reads_of_files_and_no_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a"), "text").expect("a file");
    let files = ServeDir::new(folder.path());
    let (status, tag, _) = ask(&files, "GET", "/a", &[]).await;
    assert_eq!((status, tag.is_empty()), (200, false));
    assert_eq!(
        ask(&files, "GET", "/a", &[("if-none-match", &tag)]).await.0,
        304
    );
    let part = ask(&files, "GET", "/a", &[("range", "bytes=0-1")]).await;
    assert_eq!((part.0, part.2), (206, 2));
    assert_eq!(
        ask(&files, "PUT", "/a", &[("if-match", "\"stale\"")])
            .await
            .0,
        405
    );
}

#[tokio::test]
async fn a_version_by_hand_refuses_a_stale_put_and_answers_with_the_new_tag() {
    let app = by_hand();
    let (_, tag, _) = ask(&app, "GET", "/a", &[]).await;
    let written = ask(&app, "PUT", "/a", &[("if-match", &tag)]).await;
    assert_eq!(
        (written.0, written.1),
        (204, ask(&app, "GET", "/a", &[]).await.1)
    );
    assert_eq!(ask(&app, "PUT", "/a", &[("if-match", &tag)]).await.0, 412);
}

#[tokio::test]
async fn a_version_by_hand_knows_no_other_condition_and_no_range() {
    let app = by_hand();
    let (_, tag, len) = ask(&app, "GET", "/a", &[]).await;
    assert_eq!(
        ask(&app, "GET", "/a", &[("if-none-match", &tag)]).await.0,
        200
    );
    let part = ask(&app, "GET", "/a", &[("range", "bytes=0-1")]).await;
    assert_eq!((part.0, part.2), (200, len));
    // A list with the current tag must pass (RFC 9110 §13.1.1), and a weak tag must not.
    assert_eq!(
        ask(
            &app,
            "PUT",
            "/a",
            &[("if-match", &format!("\"other\", {tag}"))]
        )
        .await
        .0,
        412
    );
}

#[tokio::test]
async fn compression_around_a_version_by_hand_gives_two_codings_one_strong_tag() {
    let app = by_hand().layer(CompressionLayer::new());
    let plain = ask(&app, "GET", "/a", &[]).await;
    let coded = ask(&app, "GET", "/a", &[("accept-encoding", "gzip")]).await;
    assert!(coded.2 < plain.2, "it is compressed");
    assert_eq!(coded.1, plain.1);
}

#[tokio::test]
async fn the_layer_does_all_of_it() {
    let app = layered();
    let plain = ask(&app, "GET", "/a", &[]).await;
    let coded = ask(&app, "GET", "/a", &[("accept-encoding", "gzip")]).await;
    assert!(
        coded.2 < plain.2 && coded.1 != plain.1,
        "{plain:?} {coded:?}"
    );
    assert_eq!(
        ask(&app, "GET", "/a", &[("if-none-match", &plain.1)])
            .await
            .0,
        304
    );
    let part = ask(&app, "GET", "/a", &[("range", "bytes=0-1")]).await;
    assert_eq!((part.0, part.2), (206, 2));
    let written = ask(
        &app,
        "PUT",
        "/a",
        &[("if-match", &format!("\"other\", {}", plain.1))],
    )
    .await;
    assert_eq!(
        (written.0, written.1),
        (200, ask(&app, "GET", "/a", &[]).await.1)
    );
    assert_eq!(
        ask(&app, "PUT", "/a", &[("if-match", &plain.1)]).await.0,
        412
    );
}
