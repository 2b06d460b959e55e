//! The layer in an axum service: serving, nesting, extractors and outer middleware.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{MatchedPath, OriginalUri, Path, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use http::request::Parts;
use http::{HeaderValue, StatusCode, Uri};
use ifmatch::axum::RouterExt;
use ifmatch::testing::{TestClient, assert_no_lost_update};
use ifmatch::{
    ConditionalLayer, Decision, EntityTag, Event, ExpectedVersion, Key, NewVersion, Permit,
    PreconditionFailed, RequirePreconditions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tower::Layer;
use tower::util::MapRequestLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;

type Note = Arc<Mutex<String>>;

async fn read(State(note): State<Note>) -> String {
    note.lock().unwrap().clone()
}

async fn write(State(note): State<Note>, text: String) {
    *note.lock().unwrap() = text;
}

fn routes() -> Router {
    Router::new()
        .route("/note", get(read).put(write))
        .with_state(Note::default())
}

#[tokio::test]
async fn serve_takes_a_layered_router() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = ConditionalLayer::new();
    let server = tokio::spawn(async move { axum::serve(listener, layer.layer(routes())).await });
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /note HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\r\netag: \""),
        "{answer}"
    );
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn no_update_is_lost_wherever_the_router_is_mounted() {
    let layer = ConditionalLayer::new;
    let apps = [
        ("/note", routes().guarded_by(layer())),
        (
            "/v1/note",
            Router::new().nest("/v1", routes().guarded_by(layer())),
        ),
        (
            "/v1/note",
            Router::new().nest("/v1", routes()).guarded_by(layer()),
        ),
        (
            "/v1/note",
            Router::new().nest_service("/v1", layer().layer(routes())),
        ),
        (
            "/v1/note",
            Router::new()
                .nest("/v1", Router::new().merge(routes()))
                .guarded_by(layer()),
        ),
    ];
    for (path, app) in apps {
        assert_no_lost_update(|| app.clone(), path, &[], "mine", "theirs").await;
    }
}

/// The state may come before the layer or after it, and each app that is made of one router has its own.
#[tokio::test(start_paused = true)]
async fn a_router_gets_its_state_before_or_after_the_layer() {
    let notes = || Router::<Note>::new().route("/note", get(read).put(write));
    let guarded = || notes().guarded_by(ConditionalLayer::new());
    let apps = [
        (
            "/note",
            notes()
                .with_state(Note::default())
                .guarded_by(ConditionalLayer::new()),
        ),
        ("/note", guarded().with_state(Note::default())),
        (
            "/v1/note",
            Router::new()
                .nest("/v1", guarded())
                .with_state(Note::default()),
        ),
        (
            "/v1/note",
            Router::new().nest("/v1", guarded().with_state(Note::default())),
        ),
        (
            "/note",
            Router::new()
                .route("/health", get(async || "well"))
                .merge(guarded())
                .with_state(Note::default()),
        ),
        (
            "/v1/note",
            Router::new()
                .nest("/v1", notes())
                .guarded_by(ConditionalLayer::new())
                .with_state(Note::default()),
        ),
    ];
    for (path, app) in apps {
        assert_no_lost_update(|| app.clone(), path, &[], "mine", "theirs").await;
    }
    let one = Arc::new(Mutex::new("one".to_owned()));
    let two = Arc::new(Mutex::new("two".to_owned()));
    let shared = guarded();
    let apps = [one, two].map(|state| TestClient::new(shared.clone().with_state(state)));
    assert_eq!(
        (
            &apps[0].get("/note").await.body[..],
            &apps[1].get("/note").await.body[..]
        ),
        (&b"one"[..], &b"two"[..])
    );
}

/// Authentication is a `route_layer`, which axum leaves out of fallbacks.
#[tokio::test]
async fn authentication_around_a_guarded_router_holds() {
    async fn authenticate(request: Request, next: Next) -> Response {
        if request.headers().contains_key("authorization") {
            return next.run(request).await;
        }
        StatusCode::UNAUTHORIZED.into_response()
    }
    let guarded = || routes().guarded_by(ConditionalLayer::new());
    let plain = || Router::new().route("/health", get(async || "well"));
    let apps = [
        ("", guarded()),
        ("", plain().merge(guarded())),
        ("", guarded().merge(plain())),
        (
            "",
            plain().route("/", get(async || "index")).merge(guarded()),
        ),
        ("/v1", plain().nest("/v1", guarded())),
        ("/v1", plain().nest("/v1", Router::new().merge(guarded()))),
        (
            "/v1/notes",
            plain().nest("/v1", plain().nest("/notes", guarded())),
        ),
    ];
    for (prefix, app) in apps {
        let client = TestClient::new(app.route_layer(from_fn(authenticate)));
        for path in ["/note", "/other"].map(|path| format!("{prefix}{path}")) {
            for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PURGE"] {
                assert_eq!(
                    client.send(method, &path, &[], "text").await.status,
                    401,
                    "{method} {path}"
                );
            }
        }
        let path = format!("{prefix}/note");
        assert_eq!(
            client
                .send("GET", &path, &[("authorization", "me")], "")
                .await
                .status,
            200,
            "{path}"
        );
    }
}

#[tokio::test]
async fn extractors_see_the_paths_of_a_guarded_router_as_those_of_a_plain_one() {
    async fn seen(path: Path<Vec<String>>, matched: MatchedPath, original: OriginalUri) -> String {
        format!(
            "{:?} {} {}",
            path.0,
            matched.as_str().trim_end_matches('/'),
            original.0
        )
    }
    let notes = || {
        Router::new()
            .route("/", get(seen))
            .route("/notes/{id}", get(seen))
            .route("/files/{*rest}", get(seen))
    };
    let app = |notes: Router| TestClient::new(Router::new().nest("/{tenant}", notes));
    let (plain, guarded) = (
        app(notes()),
        app(notes().guarded_by(ConditionalLayer::new())),
    );
    for path in [
        "/acme",
        "/acme/",
        "/acme/notes/5",
        "/acme/files/a/b",
        "/acme/notes/a%20b",
        "/acme/notes/",
        "/",
    ] {
        let (plain, guarded) = (plain.get(path).await, guarded.get(path).await);
        assert_eq!(
            (guarded.status, &guarded.body),
            (plain.status, &plain.body),
            "{path}"
        );
    }
}

#[test]
#[should_panic(expected = "both have a fallback")]
fn two_guarded_routers_are_not_merged() {
    drop(
        routes()
            .guarded_by(ConditionalLayer::new())
            .merge(routes().guarded_by(ConditionalLayer::new())),
    );
}

/// The places where a router for `/{id}` can stand so that clients find it under `/v1/notes/{id}`, and whether it has the
/// prefix in its own routes.
type Mount = (&'static str, bool, fn(Router, ConditionalLayer) -> Router);

const MOUNTS: [Mount; 8] = [
    ("not nested", true, |notes, layer| notes.guarded_by(layer)),
    ("layer()", true, |notes, layer| {
        Router::new().fallback_service(layer.layer(notes))
    }),
    ("merge", true, |notes, layer| {
        Router::new()
            .route("/health", get(async || "well"))
            .merge(notes.guarded_by(layer))
    }),
    ("nest", false, |notes, layer| {
        Router::new().nest("/v1/notes", notes.guarded_by(layer))
    }),
    ("nest in nest", false, |notes, layer| {
        Router::new().nest("/v1", Router::new().nest("/notes", notes.guarded_by(layer)))
    }),
    ("nest around merge", false, |notes, layer| {
        let notes = Router::new()
            .route("/health", get(async || "well"))
            .merge(notes.guarded_by(layer));
        Router::new().nest("/v1/notes", notes)
    }),
    ("nest_service", false, |notes, layer| {
        Router::new().nest_service("/v1/notes", layer.layer(notes))
    }),
    ("guarded around nest", false, |notes, layer| {
        Router::new().nest("/v1/notes", notes).guarded_by(layer)
    }),
];

/// Returns a note behind the layer at each place: the name of the place, a client, and the note.
fn mounted(
    layer: impl Fn() -> ConditionalLayer,
) -> impl Iterator<Item = (&'static str, TestClient<Router>, Note)> {
    MOUNTS.into_iter().map(move |(place, has_prefix, mount)| {
        let note = Note::default();
        let path = if has_prefix {
            "/v1/notes/{id}"
        } else {
            "/{id}"
        };
        let notes = Router::new()
            .route(path, get(read).put(write))
            .with_state(Arc::clone(&note));
        (place, TestClient::new(mount(notes, layer())), note)
    })
}

fn is_note(head: &Parts) -> bool {
    head.uri.path().starts_with("/v1/notes/")
}

/// A guard that looks at the path below the mount selects nothing, and both writers succeed.
#[tokio::test]
async fn guards_see_the_path_that_the_client_sent_at_any_mount() {
    for (place, client, note) in
        mounted(|| ConditionalLayer::builder().guard_where(is_note).build())
    {
        let tag = client.get("/v1/notes/1").await.tag().to_owned();
        let statuses = [
            client
                .send("PUT", "/v1/notes/1", &[("if-match", &tag)], "mine")
                .await
                .status
                .as_u16(),
            client
                .send("PUT", "/v1/notes/1", &[("if-match", &tag)], "theirs")
                .await
                .status
                .as_u16(),
        ];
        assert_eq!(
            (statuses, &**note.lock().unwrap()),
            ([200, 412], "mine"),
            "{place}"
        );
    }
}

#[tokio::test]
async fn required_conditions_are_required_at_any_mount() {
    let layer = || {
        let builder =
            ConditionalLayer::builder().require_preconditions(RequirePreconditions::for_writes());
        builder.require_where(is_note).build()
    };
    for (place, client, note) in mounted(layer) {
        assert_eq!(
            client.send("PUT", "/v1/notes/1", &[], "blind").await.status,
            428,
            "{place}"
        );
        assert_eq!(*note.lock().unwrap(), "", "{place}");
    }
}

#[tokio::test]
async fn leases_are_acquired_and_exclude_others_at_any_mount() {
    let acquire = [
        ("x-ms-lease-action", "acquire"),
        ("x-ms-lease-duration", "15"),
    ];
    for (place, client, note) in mounted(|| {
        ConditionalLayer::builder()
            .ephemeral_leases()
            .lease_where(is_note)
            .build()
    }) {
        let lease = client
            .send("PUT", "/v1/notes/1?comp=lease", &acquire, "")
            .await
            .status
            .as_u16();
        let write = client
            .send("PUT", "/v1/notes/1", &[], "another")
            .await
            .status
            .as_u16();
        assert_eq!(
            (lease, write, &**note.lock().unwrap()),
            (201, 412, ""),
            "{place}"
        );
    }
}

/// Two resources of one layer under two prefixes. With one key, the tag that was read last would be the tag of both: it would
/// confirm the other resource, or let replace it.
#[tokio::test]
async fn keys_by_closure_differ_where_the_sent_paths_differ() {
    for (method, expected) in [("GET", 200), ("PUT", 412)] {
        let layer = ConditionalLayer::builder()
            .authoritative()
            .key(|head: &Parts| Key::new(head.uri.path()))
            .build();
        let animal = |name: &'static str| {
            Router::new()
                .route("/{id}", get(async move || name).put(async || {}))
                .guarded_by(layer.clone())
        };
        let client = TestClient::new(
            Router::new()
                .nest("/cats", animal("cat"))
                .nest("/dogs", animal("dog")),
        );
        assert_eq!(client.get("/dogs/1").await.status, 200);
        let cat = client.get("/cats/1").await;
        let condition = if method == "GET" {
            "if-none-match"
        } else {
            "if-match"
        };
        assert_eq!(
            client
                .send(method, "/dogs/1", &[(condition, cat.tag())], "x")
                .await
                .status,
            expected,
            "{method}"
        );
    }
}

/// A middleware between an outer router and the layer gives a resource another name. Its key is the resource's: under two keys,
/// two writers with one tag would both succeed.
#[tokio::test]
async fn a_rewritten_uri_is_the_resource_that_it_names() {
    fn latest(mut request: Request) -> Request {
        if request.uri().path() == "/v1/notes/latest" {
            *request.uri_mut() = Uri::from_static("/v1/notes/7");
        }
        request
    }
    let note = Note::default();
    let notes = Router::new()
        .route("/v1/notes/{id}", get(read).put(write))
        .with_state(Arc::clone(&note));
    let layer = ConditionalLayer::builder()
        .guard_where(|head| head.uri.path() == "/v1/notes/7")
        .build();
    let rewritten = MapRequestLayer::new(latest).layer(layer.layer(notes));
    let client = TestClient::new(Router::new().fallback_service(rewritten));
    let tag = client.get("/v1/notes/7").await.tag().to_owned();
    assert_eq!(
        client
            .send("PUT", "/v1/notes/latest", &[("if-match", &tag)], "mine")
            .await
            .status,
        200
    );
    assert_eq!(
        client
            .send("PUT", "/v1/notes/7", &[("if-match", &tag)], "theirs")
            .await
            .status,
        412
    );
    assert_eq!(
        client
            .send("PUT", "/v1/notes/latest", &[("if-match", &tag)], "theirs")
            .await
            .status,
        412
    );
    assert_eq!(*note.lock().unwrap(), "mine");
}

/// A middleware strips a language, as nesting strips a prefix. The resource has one key, whatever its name: under two, all of these
/// writers would succeed.
#[tokio::test]
async fn a_stripped_prefix_that_is_no_mount_makes_no_other_resource() {
    fn strip_language(mut request: Request) -> Request {
        if let Some(path) = ["/en", "/de"]
            .iter()
            .find_map(|prefix| request.uri().path().strip_prefix(prefix))
        {
            *request.uri_mut() = path.parse().unwrap();
        }
        request
    }
    let keys = Arc::new(Mutex::new(Vec::new()));
    let guarded = || {
        let keys = Arc::clone(&keys);
        let key = move |head: &Parts| {
            keys.lock().unwrap().push(head.uri.path().to_owned());
            Key::new(head.uri.path())
        };
        let layer = ConditionalLayer::builder().key(key).build();
        Router::new()
            .route("/n", get(read).put(write))
            .with_state(Note::default())
            .guarded_by(layer)
    };
    let apps = [
        Router::new().fallback_service(MapRequestLayer::new(strip_language).layer(guarded())),
        guarded().layer(MapRequestLayer::new(strip_language)),
    ];
    for client in apps.map(TestClient::new) {
        for path in ["/en/n", "/de/n", "/n"] {
            assert_eq!(
                client.send("PUT", path, &[], "text").await.status,
                200,
                "{path}"
            );
        }
        let found = std::mem::take(&mut *keys.lock().unwrap());
        assert!(
            found.len() >= 3 && found.iter().all(|key| key == "/n"),
            "{found:?}"
        );
    }
}

/// The handler, also of the layer's own GET, gets the path below its mount, and the query of the variant that it asks for.
#[tokio::test]
async fn handlers_get_the_uri_below_their_mount() {
    async fn show(uri: Uri, OriginalUri(original): OriginalUri) -> String {
        format!("{uri} {original}")
    }
    let layer = ConditionalLayer::builder().guard_where(is_note).build();
    let notes = Router::new()
        .route("/{id}", get(show).put(show))
        .guarded_by(layer);
    let client = TestClient::new(Router::new().nest("/v1/notes", notes));
    for (method, fields) in [
        ("GET", &[][..]),
        ("PUT", &[]),
        ("PUT", &[("if-none-match", "\"x\"")]),
    ] {
        let answer = client.send(method, "/v1/notes/1?page=2", fields, "").await;
        let expected = b"/1?page=2 /v1/notes/1?page=2";
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (200, &expected[..]),
            "{method} {fields:?}"
        );
    }
}

/// Requests to two mounts of one layer: neither waits for the other, since their keys hold the mount.
#[tokio::test]
async fn two_mounts_of_one_layer_are_two_resources() {
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = put({
        let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
        async move || {
            entered.notify_one();
            leave.notified().await;
        }
    });
    let layer = ConditionalLayer::builder()
        .lock_timeout(Duration::ZERO)
        .build();
    let slow = Router::new().route("/note", slow);
    let app = Router::new()
        .nest("/a", slow.guarded_by(layer.clone()))
        .nest("/b", routes().guarded_by(layer));
    let client = TestClient::new(app);
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.send("PUT", "/a/note", &[], "").await.status }
    });
    entered.notified().await;
    assert_eq!(client.send("PUT", "/b/note", &[], "text").await.status, 200);
    assert_eq!(client.send("PUT", "/a/note", &[], "text").await.status, 409);
    leave.notify_waiters();
    assert_eq!(first.await.unwrap(), 200);
}

#[tokio::test]
async fn a_location_names_a_resource_below_the_mount() {
    async fn add(State(list): State<Note>) -> impl IntoResponse {
        list.lock().unwrap().push_str(", two");
        (StatusCode::CREATED, [("location", "/v1/list")])
    }
    let list: Note = Arc::new(Mutex::new("one".to_owned()));
    let routes = Router::new()
        .route("/list", get(read))
        .route("/add", put(add))
        .with_state(list);
    let layer = ConditionalLayer::builder().authoritative().build();
    let client = TestClient::new(Router::new().nest("/v1", routes.guarded_by(layer)));
    let before = client.get("/v1/list").await;
    assert_eq!(
        client
            .send("GET", "/v1/list", &[("if-none-match", before.tag())], "")
            .await
            .status,
        304
    );
    assert_eq!(client.send("PUT", "/v1/add", &[], "").await.status, 201);
    assert_eq!(
        client
            .send("GET", "/v1/list", &[("if-none-match", before.tag())], "")
            .await
            .status,
        200
    );
}

async fn save(expected: ExpectedVersion, permit: Permit) -> String {
    format!("{} {expected:?}", permit.fencing_token())
}

#[tokio::test]
async fn handlers_extract_the_permit_and_the_version() {
    let optional = put(async |permit: Option<Permit>| permit.is_some().to_string());
    let routes = Router::new()
        .route("/note", get(async || "text").put(save))
        .route("/optional", optional);
    let bare = TestClient::new(routes.clone());
    assert_eq!(bare.send("PUT", "/note", &[], "").await.status, 500);
    assert_eq!(
        &bare.send("PUT", "/optional", &[], "").await.body[..],
        b"false"
    );
    let client = TestClient::new(routes.guarded_by(ConditionalLayer::new()));
    let tag = client.get("/note").await.tag().to_owned();
    let saved = client.send("PUT", "/note", &[("if-match", &tag)], "").await;
    let expected = ExpectedVersion::Tag(EntityTag::parse(tag.as_bytes()).unwrap());
    assert!(
        String::from_utf8_lossy(&saved.body).ends_with(&format!("{expected:?}")),
        "{saved:?}"
    );
    assert_eq!(
        &client.send("PUT", "/optional", &[], "").await.body[..],
        b"true"
    );
}

/// A table with one row: its version and text, or none. Something else may write to it, past the layer.
#[derive(Clone, Default)]
struct Table {
    row: Arc<Mutex<Option<(u64, String)>>>,
    reads: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
}

impl Table {
    fn write(&self, expected: &ExpectedVersion, text: String) -> Option<EntityTag> {
        let mut row = self.row.lock().unwrap();
        let version = row.as_ref().map_or(0, |(version, _)| *version);
        let is_expected = match expected {
            ExpectedVersion::Any => true,
            ExpectedVersion::Absent => row.is_none(),
            ExpectedVersion::Tag(tag) => {
                row.is_some() && tag.opaque_str() == Some(&version.to_string())
            }
        };
        is_expected.then(|| {
            *row = Some((version + 1, text));
            tag_of(version + 1)
        })
    }

    /// Returns the numbers of the handlers' runs since the last call: of GET, and of PUT.
    fn runs(&self) -> (u64, u64) {
        (
            self.reads.swap(0, Ordering::SeqCst),
            self.writes.swap(0, Ordering::SeqCst),
        )
    }
}

fn tag_of(version: u64) -> EntityTag {
    EntityTag::strong(&version.to_string()).unwrap()
}

async fn select(State(table): State<Table>) -> Result<(EntityTag, String), StatusCode> {
    table.reads.fetch_add(1, Ordering::SeqCst);
    let (version, text) = table
        .row
        .lock()
        .unwrap()
        .clone()
        .ok_or(StatusCode::NOT_FOUND)?;
    Ok((tag_of(version), text))
}

async fn update(
    State(table): State<Table>,
    expected: ExpectedVersion,
    text: String,
) -> Result<EntityTag, PreconditionFailed> {
    table.writes.fetch_add(1, Ordering::SeqCst);
    table.write(&expected, text).ok_or(PreconditionFailed)
}

/// One run of the handler of PUT, and none of GET, for each condition that the handler can compare. Others need the layer's GET, and a
/// refusal gets its tag from one.
#[tokio::test]
async fn a_write_whose_handler_checks_the_version_costs_one_run() {
    let table = Table::default();
    let layer = ConditionalLayer::builder()
        .handlers_check_versions()
        .build();
    let routes = Router::new()
        .route("/row", get(select).put(update))
        .guarded_by(layer);
    let client = TestClient::new(routes.with_state(table.clone()));
    for (fields, status, tag, runs) in [
        (&[("if-none-match", "*")][..], 200, "\"1\"", (0, 1)),
        (&[("if-none-match", "*")], 412, "\"1\"", (1, 1)),
        (&[("if-match", "\"1\"")], 200, "\"2\"", (0, 1)),
        (&[("if-match", "\"1\"")], 412, "\"2\"", (1, 1)),
        (&[], 200, "\"3\"", (0, 1)),
        (&[("if-match", "W/\"3\"")], 412, "\"3\"", (1, 0)),
        (&[("if-match", "\"2\", \"3\"")], 200, "\"4\"", (1, 1)),
        (&[("if-match", "*")], 200, "\"5\"", (1, 1)),
        (&[("if-match", "\"4\"")], 412, "\"5\"", (1, 1)),
    ] {
        let answer = client.send("PUT", "/row", fields, "text").await;
        assert_eq!(
            (answer.status.as_u16(), answer.tag(), table.runs()),
            (status, tag, runs),
            "{fields:?}"
        );
        assert!(
            status == 200 || String::from_utf8_lossy(&answer.body).contains("precondition-failed"),
            "{answer:?}"
        );
    }
    // A job writes past the layer: the client's version is no longer the current one.
    table
        .write(&ExpectedVersion::Any, "the job's".to_owned())
        .unwrap();
    let lost = client
        .send("PUT", "/row", &[("if-match", "\"5\"")], "mine")
        .await;
    assert_eq!(
        (lost.status.as_u16(), &*table.row.lock().unwrap()),
        (412, &Some((6, "the job's".to_owned())))
    );
    // The client gets out of the 412: memory no longer confirms its version.
    let again = client
        .send("GET", "/row", &[("if-none-match", "\"5\"")], "")
        .await;
    assert_eq!((again.status.as_u16(), again.tag()), (200, "\"6\""));
    // Between the layer's comparison of a list and the write: the handler gets the version that the layer has found.
    let saved = client
        .send("PUT", "/row", &[("if-match", "\"5\", \"6\"")], "mine")
        .await;
    assert_eq!((saved.status.as_u16(), saved.tag()), (200, "\"7\""));
}

/// A job writes after the handler, and before a GET by the layer: its tag would let the client overwrite what it has never seen.
#[tokio::test]
async fn a_write_without_a_stated_version_has_no_tag_where_others_write_past_the_layer() {
    async fn update(
        State(table): State<Table>,
        expected: ExpectedVersion,
        text: String,
    ) -> Result<(), PreconditionFailed> {
        table.write(&expected, text).ok_or(PreconditionFailed)?;
        table.write(&ExpectedVersion::Any, "the job's".to_owned());
        Ok(())
    }
    let table = Table::default();
    let layer = ConditionalLayer::builder()
        .handlers_check_versions()
        .build();
    let routes = Router::new()
        .route("/row", get(select).put(update).delete(update))
        .guarded_by(layer);
    let client = TestClient::new(routes.with_state(table.clone()));
    for method in ["PUT", "DELETE"] {
        let answer = client.send(method, "/row", &[], "mine").await;
        assert_eq!(
            (answer.status.as_u16(), answer.tag(), table.runs()),
            (200, "", (0, 0)),
            "{method}"
        );
    }
}

/// The layer compares the conditions of POST: its handler makes another resource, and needn't know them.
#[tokio::test]
async fn a_post_needs_no_version_of_its_target() {
    async fn publish(expected: ExpectedVersion) -> String {
        format!("{expected:?}")
    }
    let table = Table::default();
    table.write(&ExpectedVersion::Any, "text".to_owned());
    let layer = ConditionalLayer::builder()
        .handlers_check_versions()
        .build();
    let routes = Router::new()
        .route("/row", get(select).post(publish))
        .route("/rows", put(async || {}).post(async || {}));
    let client = TestClient::new(routes.guarded_by(layer).with_state(table));
    for (path, fields, status, body) in [
        ("/row", &[][..], 200, "Any"),
        ("/row", &[("if-match", "\"1\"")], 200, "Tag"),
        ("/row", &[("if-match", "\"0\"")], 412, "precondition-failed"),
        (
            "/rows",
            &[("if-none-match", "*")],
            412,
            "precondition-failed",
        ),
        ("/rows", &[("if-match", "*")], 200, ""),
    ] {
        let answer = client.send("POST", path, fields, "").await;
        let text = String::from_utf8_lossy(&answer.body);
        assert!(
            answer.status == status && text.contains(body),
            "{path} {fields:?}: {answer:?}"
        );
    }
}

/// Otherwise a forgotten extractor would lose updates in silence.
#[tokio::test]
async fn a_handler_that_does_not_check_the_version_is_reported() {
    let layer = ConditionalLayer::builder()
        .handlers_check_versions()
        .build();
    let redirecting = put(async || StatusCode::SEE_OTHER);
    let passing_on = put(async || StatusCode::PERMANENT_REDIRECT);
    let routes = routes()
        .route("/see-other", redirecting)
        .route("/moved", passing_on);
    let client = TestClient::new(routes.guarded_by(layer));
    let tag = client.get("/note").await.tag().to_owned();
    assert_eq!(
        client
            .send("PUT", "/see-other", &[("if-match", &tag)], "mine")
            .await
            .status,
        500
    );
    assert_eq!(
        client
            .send("PUT", "/moved", &[("if-match", &tag)], "mine")
            .await
            .status,
        308,
        "nothing was written"
    );
    assert_eq!(
        client
            .send("PUT", "/note", &[], "unconditional")
            .await
            .status,
        200
    );
    let saved = client
        .send("PUT", "/note", &[("if-match", &tag)], "mine")
        .await;
    let body = String::from_utf8_lossy(&saved.body);
    assert!(
        saved.status == 500
            && body.contains("version-unchecked")
            && body.contains("ExpectedVersion"),
        "{saved:?}"
    );
}

#[tokio::test]
async fn errors_have_the_form_of_the_service() {
    let layer = ConditionalLayer::builder()
        .require_preconditions(RequirePreconditions::for_writes())
        .handlers_check_versions()
        .error_body(|problem| {
            let text = format!(
                "error: {} ({})",
                problem.name(),
                problem.message().is_some()
            );
            (HeaderValue::from_static("text/plain"), text.into())
        })
        .build();
    let compression = CompressionLayer::new().compress_when(SizeAbove::new(1));
    let routes = Router::new()
        .route("/row", get(select).put(update))
        .layer(compression)
        .guarded_by(layer);
    let client = TestClient::new(routes.with_state(Table::default()));
    assert_eq!(
        client
            .send("PUT", "/row", &[("if-none-match", "*")], "text")
            .await
            .status,
        200
    );
    // The problem of a handler, compressed on its way to the layer.
    let refused = client
        .send(
            "PUT",
            "/row",
            &[("if-match", "\"0\""), ("accept-encoding", "gzip")],
            "text",
        )
        .await;
    assert_eq!(&refused.body[..], b"error: precondition-failed (true)");
    assert!(
        !refused.headers.contains_key("content-encoding"),
        "{refused:?}"
    );
    for (method, fields, status, expected) in [
        (
            "PUT",
            [("accept", "*/*")],
            428,
            "error: precondition-required (true)",
        ),
        (
            "PUT",
            [("if-match", "\"0\"")],
            412,
            "error: precondition-failed (true)",
        ),
        (
            "PUT",
            [("if-match", "W/\"1\"")],
            412,
            "error: precondition-failed (true)",
        ),
        (
            "GET",
            [("if-match", "\"0\"")],
            412,
            "error: precondition-failed (true)",
        ),
        ("HEAD", [("if-match", "\"0\"")], 412, ""),
        ("GET", [("if-none-match", "\"1\"")], 304, ""),
        ("GET", [("accept", "*/*")], 200, "text"),
    ] {
        let answer = client.send(method, "/row", &fields, "text").await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (status, expected.as_bytes()),
            "{method} {fields:?}"
        );
        let length = answer
            .headers
            .get("content-length")
            .map(|length| length.to_str().unwrap().to_owned());
        let is_error = status >= 400;
        assert!(
            !is_error || answer.headers["content-type"] == "text/plain",
            "{answer:?}"
        );
        assert!(
            !is_error || method == "HEAD" || length == Some(expected.len().to_string()),
            "{answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_version_is_part_of_a_response() {
    async fn write(State(note): State<Note>, text: String) -> impl IntoResponse {
        note.lock().unwrap().clone_from(&text);
        (NewVersion::Body, Json(text))
    }
    async fn read(State(note): State<Note>) -> Json<String> {
        Json(note.lock().unwrap().clone())
    }
    let routes = Router::new()
        .route("/note", get(read).put(write))
        .with_state(Note::default());
    let layer = ConditionalLayer::builder().get_after_writes(false).build();
    let app = routes.guarded_by(layer);
    assert_no_lost_update(|| app.clone(), "/note", &[], "mine", "theirs").await;
}

/// Its tag is the new resource's, and never confirms the list that it was added to.
#[tokio::test]
async fn a_created_resource_has_the_tag_that_the_handler_states() {
    async fn add(State(note): State<Note>, text: String) -> impl IntoResponse {
        note.lock().unwrap().clone_from(&text);
        (
            StatusCode::CREATED,
            [("location", "/notes/1")],
            NewVersion::Content(text.into()),
            (),
        )
    }
    for conditions in [&[][..], &[("if-match", "*")]] {
        let routes = Router::new()
            .route("/notes", get(async || "list").post(add))
            .route("/notes/1", get(read).put(write))
            .with_state(Note::default());
        let client =
            TestClient::new(routes.guarded_by(ConditionalLayer::builder().authoritative().build()));
        let created = client.send("POST", "/notes", conditions, "hello").await;
        assert_eq!(
            (created.status.as_u16(), created.tag()),
            (201, client.get("/notes/1").await.tag())
        );
        let list = client
            .send("GET", "/notes", &[("if-none-match", created.tag())], "")
            .await;
        assert_eq!(list.status, 200, "{conditions:?}");
        let saved = client
            .send("PUT", "/notes/1", &[("if-match", created.tag())], "mine")
            .await;
        assert_eq!(saved.status, 200, "{conditions:?}");
    }
}

#[tokio::test]
async fn decisions_are_counted_by_an_observer_and_seen_by_outer_middleware() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    async fn count(request: Request, next: Next) -> Response {
        let response = next.run(request).await;
        if response.extensions().get::<Decision>().is_some() {
            SEEN.fetch_add(1, Ordering::SeqCst);
        }
        response
    }
    let decisions = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&decisions);
    let layer = ConditionalLayer::builder()
        .require_preconditions(RequirePreconditions::for_writes())
        .observer(move |answered: &Event<'_>| {
            let Event {
                decision,
                method,
                uri,
                duration,
                ..
            } = answered;
            assert!(
                *duration < Duration::from_hours(1),
                "the duration of one request"
            );
            let seen = (
                format!("{method} {uri}"),
                decision.status().as_u16(),
                decision.reason(),
            );
            observed.lock().unwrap().push(seen);
        })
        .build();
    let client = TestClient::new(
        Router::new()
            .nest("/v1", routes().guarded_by(layer))
            .layer(from_fn(count)),
    );
    let tag = client.get("/v1/note").await.tag().to_owned();
    client.send("PUT", "/v1/note", &[], "blind").await;
    client
        .send(
            "PUT",
            "/v1/note?by=me",
            &[("if-match", "\"stale\"")],
            "lost",
        )
        .await;
    client
        .send("GET", "/v1/note", &[("if-none-match", &tag)], "")
        .await;
    client
        .send("GET", "/v1/note", &[("if-match", "\"other\"")], "")
        .await;
    client
        .send("PUT", "/v1/note", &[("if-match", &tag)], "saved")
        .await;
    let expected = [
        ("PUT /v1/note".to_owned(), 428, "precondition-required"),
        ("PUT /v1/note?by=me".to_owned(), 412, "precondition-failed"),
        ("GET /v1/note".to_owned(), 304, "not-modified"),
        ("GET /v1/note".to_owned(), 412, "precondition-failed"),
    ];
    assert_eq!(*decisions.lock().unwrap(), expected);
    assert_eq!(SEEN.load(Ordering::SeqCst), 3);
}

#[test]
#[should_panic(expected = "router.guarded_by(layer)")]
fn the_panic_at_a_single_route_names_the_replacement() {
    drop(routes().route_layer(ConditionalLayer::new()));
}

#[test]
#[should_panic(expected = "must wrap the whole router")]
fn the_panic_of_axums_layer_says_what_to_wrap() {
    drop(routes().layer(ConditionalLayer::new()));
}

#[test]
#[should_panic(expected = "add Builder::require_preconditions")]
fn a_setting_without_an_effect_is_refused() {
    drop(ConditionalLayer::builder().require_where(|_| true).build());
}

#[test]
#[should_panic(expected = "Builder::handlers_check_versions")]
fn a_layer_that_knows_all_versions_has_no_handlers_that_check_them() {
    drop(
        ConditionalLayer::builder()
            .authoritative()
            .handlers_check_versions()
            .build(),
    );
}

#[test]
#[should_panic(expected = "set a longer one")]
fn a_write_timeout_of_zero_is_refused() {
    drop(
        ConditionalLayer::builder()
            .write_timeout(Duration::ZERO)
            .build(),
    );
}
