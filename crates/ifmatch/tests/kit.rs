//! The check of the test kit: the services that it must pass, and those that lose an update in one way each. Handlers that compare
//! versions: what their 412s say, and the statements of a PUT that creates or replaces.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::routing::get;
use futures_util::FutureExt;
use ifmatch::axum::RouterExt;
use ifmatch::testing::{TestClient, assert_no_lost_update};
use ifmatch::{ConditionalLayer, EntityTag, ExpectedVersion, PreconditionFailed};
use tokio::task::yield_now;

/// A row of a database that all instances share: version and text.
type Row = Arc<Mutex<(i64, String)>>;

type Saved = Result<EntityTag, PreconditionFailed>;

async fn read(State(row): State<Row>) -> (EntityTag, String) {
    let (version, text) = row.lock().unwrap().clone();
    (EntityTag::from(version), text)
}

fn save(row: &Row, text: String) -> EntityTag {
    let mut row = row.lock().unwrap();
    *row = (row.0 + 1, text);
    EntityTag::from(row.0)
}

fn compare(row: &Row, expected: Option<i64>) -> Result<(), PreconditionFailed> {
    let is_current = expected.is_none_or(|expected| expected == row.lock().unwrap().0);
    is_current.then_some(()).ok_or(PreconditionFailed)
}

/// `UPDATE … WHERE version = …`, a way to the database before it and one after it.
async fn compare_and_write(
    State(row): State<Row>,
    expected: ExpectedVersion,
    text: String,
) -> Saved {
    let expected = expected.of_row()?;
    yield_now().await;
    let saved = compare(&row, expected).map(|()| save(&row, text));
    yield_now().await;
    saved
}

/// `SELECT version`, a comparison, two more ways to the database, and an `UPDATE` without the version.
async fn compare_then_write(
    State(row): State<Row>,
    expected: ExpectedVersion,
    text: String,
) -> Saved {
    let expected = expected.of_row()?;
    yield_now().await;
    compare(&row, expected)?;
    yield_now().await;
    yield_now().await;
    Ok(save(&row, text))
}

/// The version isn't compared at all.
async fn write(State(row): State<Row>, _: ExpectedVersion, text: String) -> Saved {
    Ok(save(&row, text))
}

/// The version is compared, and the write takes place whatever the result.
async fn write_and_refuse(
    State(row): State<Row>,
    expected: ExpectedVersion,
    text: String,
) -> Saved {
    let expected = expected.of_row()?;
    let before = compare(&row, expected);
    let tag = save(&row, text);
    before.map(|()| tag)
}

/// An instance by the guide's steps.
fn instance<H: Handler<T, Row>, T: 'static>(handler: H, row: Row) -> Router {
    let layer = ConditionalLayer::builder()
        .handlers_check_versions()
        .build();
    Router::new()
        .route("/note", get(read).put(handler))
        .guarded_by(layer)
        .with_state(row)
}

fn row() -> Row {
    Arc::new(Mutex::new((1, "first".to_owned())))
}

/// Returns what the check says, or `None` if the service passes.
async fn check(service: impl Fn() -> Router) -> Option<String> {
    let checked = AssertUnwindSafe(assert_no_lost_update(
        service,
        "/note",
        &[],
        "mine",
        "theirs",
    ))
    .catch_unwind();
    checked
        .await
        .err()
        .map(|panic| *panic.downcast::<String>().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_handler_with_the_version_in_its_statement_passes() {
    let row = row();
    assert_eq!(
        check(|| instance(compare_and_write, row.clone())).await,
        None
    );
}

/// One process with its state in memory, where the layer compares.
#[tokio::test(start_paused = true)]
async fn clones_of_one_instance_pass() {
    let routes = Router::new().route(
        "/note",
        get(read).put(async |state: State<Row>, text: String| save(&state.0, text)),
    );
    let app = routes.guarded_by(ConditionalLayer::new()).with_state(row());
    assert_eq!(check(|| app.clone()).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_compares_and_then_writes_without_the_version_fails() {
    let row = row();
    let said = check(|| instance(compare_then_write, row.clone()))
        .await
        .expect("it loses updates");
    for part in [
        "an update is lost",
        "PUT /note with If-Match: \"",
        "paused at its await number 2",
        "AND version",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The same, but the database has nearly always answered before the handler waits, so there is hardly ever a pause in between.
#[tokio::test(start_paused = true)]
async fn a_handler_whose_awaits_are_nearly_always_ready_fails() {
    let (row, calls) = (row(), Arc::new(AtomicUsize::new(0)));
    let handler = async move |State(row): State<Row>, expected: ExpectedVersion, text: String| {
        compare(&row, expected.of_row()?)?;
        if calls.fetch_add(1, Ordering::Relaxed) % 31 == 30 {
            yield_now().await;
        }
        Saved::Ok(save(&row, text))
    };
    let lost = check(|| instance(handler.clone(), row.clone())).await;
    let lost = lost.expect("the check fails");
    assert!(lost.contains("at its await number 1"), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_compares_nothing_fails() {
    let row = row();
    let said = check(|| instance(write, row.clone()))
        .await
        .expect("it loses updates");
    assert!(
        said.contains("the instance that replaced it accepted PUT /note with the stale tag \"1\""),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_that_was_done_fails() {
    let row = row();
    let said = check(|| instance(write_and_refuse, row.clone()))
        .await
        .expect("it loses updates");
    assert!(
        said.contains("a refused PUT /note changed the resource"),
        "{said}"
    );
}

/// Each layer keeps its own writers apart only: there is no version in the statement, and no register that both share.
#[tokio::test(start_paused = true)]
async fn two_instances_without_a_shared_register_fail() {
    let row = row();
    let replica = || {
        let routes = Router::new().route(
            "/note",
            get(read).put(async |state: State<Row>, text: String| save(&state.0, text)),
        );
        routes
            .guarded_by(ConditionalLayer::new())
            .with_state(row.clone())
    };
    let said = check(replica).await.expect("it loses updates");
    assert!(
        said.contains("paused before it started") && said.contains("share a register"),
        "{said}"
    );
}

/// A row that may be missing, and the number of GETs.
#[derive(Clone, Default)]
struct Draft {
    row: Arc<Mutex<Option<(i64, String)>>>,
    reads: Arc<AtomicUsize>,
}

async fn read_draft(State(draft): State<Draft>) -> Result<(EntityTag, String), StatusCode> {
    draft.reads.fetch_add(1, Ordering::Relaxed);
    let row = draft.row.lock().unwrap().clone();
    row.map(|(version, text)| (EntityTag::from(version), text))
        .ok_or(StatusCode::NOT_FOUND)
}

async fn save_draft(State(draft): State<Draft>, expected: ExpectedVersion, text: String) -> Saved {
    let mut row = draft.row.lock().unwrap();
    expected.check(row.as_ref().map(|(version, _)| version))?;
    let version = row.as_ref().map_or(1, |(version, _)| version + 1);
    *row = Some((version, text));
    Ok(EntityTag::from(version))
}

async fn delete_draft(
    State(draft): State<Draft>,
    expected: ExpectedVersion,
) -> Result<StatusCode, PreconditionFailed> {
    let mut row = draft.row.lock().unwrap();
    let version = row.as_ref().ok_or(PreconditionFailed)?.0;
    expected.check(Some(version))?;
    *row = None;
    Ok(StatusCode::NO_CONTENT)
}

/// The 412 of a handler says which condition is false, and has the current tag.
#[tokio::test]
async fn a_refusal_of_a_handler_has_the_reason_and_the_current_tag() {
    for gets in [true, false] {
        let draft = Draft::default();
        let layer = ConditionalLayer::builder()
            .handlers_check_versions()
            .get_after_writes(gets)
            .build();
        let routes = Router::new().route(
            "/draft",
            get(read_draft).put(save_draft).delete(delete_draft),
        );
        let client = TestClient::new(routes.guarded_by(layer).with_state(draft.clone()));
        let put = async |field: (&str, &str)| client.send("PUT", "/draft", &[field], "text").await;
        for (answer, tag, said) in [
            (
                put(("if-match", "\"7\"")).await,
                "",
                "the resource doesn't exist",
            ),
            (
                client
                    .send("DELETE", "/draft", &[("if-match", "\"7\"")], "")
                    .await,
                "",
                "the resource doesn't exist",
            ),
            (put(("if-none-match", "*")).await, "\"1\"", ""),
            (put(("if-none-match", "*")).await, "\"1\"", "already exists"),
            (put(("if-match", "\"1\"")).await, "\"2\"", ""),
            (
                put(("if-match", "\"1\"")).await,
                "\"2\"",
                "the resource has changed",
            ),
            (
                put(("if-match", "W/\"2\"")).await,
                "\"2\"",
                "only weak ETags",
            ),
            (
                put(("if-match", "\"text\"")).await,
                "\"2\"",
                "the resource has changed",
            ),
        ] {
            let body = String::from_utf8_lossy(&answer.body);
            if said.is_empty() {
                assert_eq!(
                    (answer.status.as_u16(), answer.tag()),
                    (200, tag),
                    "{answer:?}"
                );
                continue;
            }
            // A weak tag is for the layer to refuse, which compares itself then.
            let is_told = gets || said == "only weak ETags";
            let said = if is_told {
                said
            } else {
                "isn't in the version that the request names"
            };
            assert_eq!(
                (answer.status.as_u16(), answer.tag()),
                (412, if is_told { tag } else { "" }),
                "{answer:?}"
            );
            assert!(body.contains(said), "{said}: {body}");
            assert_eq!(
                answer.headers["content-length"],
                answer.body.len().to_string()
            );
        }
        assert!(
            gets || draft.reads.load(Ordering::Relaxed) == 1,
            "only the layer's own comparison reads"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_creates_or_replaces_passes() {
    let draft = Draft {
        row: Arc::new(Mutex::new(Some((1, "first".to_owned())))),
        ..Draft::default()
    };
    let replica = || {
        let layer = ConditionalLayer::builder()
            .handlers_check_versions()
            .build();
        Router::new()
            .route("/note", get(read_draft).put(save_draft))
            .guarded_by(layer)
            .with_state(draft.clone())
    };
    assert_eq!(check(replica).await, None);
}

#[test]
fn an_expected_version_is_compared_with_a_row_or_named_for_a_statement() {
    let tag = |text: &str| ExpectedVersion::Tag(EntityTag::strong(text).unwrap());
    for (expected, current, holds) in [
        (ExpectedVersion::Any, None, true),
        (ExpectedVersion::Any, Some(7), true),
        (ExpectedVersion::Absent, None, true),
        (ExpectedVersion::Absent, Some(7), false),
        (tag("7"), Some(7), true),
        (tag("7"), None, false),
        (tag("8"), Some(7), false),
        (tag("+7"), Some(7), false),
        (
            ExpectedVersion::Tag(EntityTag::weak("7").unwrap()),
            Some(7),
            false,
        ),
    ] {
        assert_eq!(
            expected.check(current).is_ok(),
            holds,
            "{expected:?} {current:?}"
        );
    }
    assert_eq!(tag("7").version(), Ok(Some(7)));
    assert_eq!(tag("x").version::<i64>(), Err(PreconditionFailed));
    assert_eq!(ExpectedVersion::Absent.version::<i64>(), Ok(None));
    assert_eq!(ExpectedVersion::Any.version::<i64>(), Ok(None));
}
