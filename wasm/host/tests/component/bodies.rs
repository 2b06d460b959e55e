//! Bodies that break off, that have left the guest's hands when they do, and that arrive in crumbs.

use std::convert::Infallible;

use bytes::Bytes;
use component_host::{Answer, Body, Compiled, Instance, Network, request};
use futures_util::{StreamExt, stream};
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use wasmtime_wasi_http::Error;

use crate::gateway::Gateway;
use crate::{GUARDED, INSTANCE, JAVASCRIPT, PYTHON, STORE, call, start};

/// Longer than any test: a write that ends before then wasn't ended by its time limit.
const AN_HOUR: (&str, &str) = ("IFMATCH_WRITE_TIMEOUT", "3600");

/// The length that the head states, and the bytes that arrive.
type Upload = (Option<usize>, usize);

/// Uploads that break off: three before ifmatch asks for the permit, and three while the guest reads.
const UPLOADS: [Upload; 6] = [
    (Some(1_000), 10),
    (None, 10),
    (None, 0),
    (Some(1_000_000), 10),
    (Some(1_000_000), 300_000),
    (None, 1_000_000),
];

/// A conditional PUT of which `sent` bytes arrive before its client leaves.
fn broken_off(path: &str, tag: &str, length: Option<usize>, sent: usize) -> Request<Body> {
    let sent = (sent > 0).then(|| Ok(Frame::data(Bytes::from(vec![b'y'; sent]))));
    let left = Err(Error::ConnectionTerminated);
    let body: Body = StreamBody::new(stream::iter(sent.into_iter().chain([left]))).boxed_unsync();
    let mut request = Request::put(format!("http://service.example{path}")).header("if-match", tag);
    if let Some(length) = length {
        request = request.header("content-length", length);
    }
    request.body(body).unwrap()
}

/// Returns an answer, or the error, once there is one.
async fn ended(instance: &Instance, request: Request<Body>, what: &str) -> Result<Answer, String> {
    let result = instance.call(request).await;
    assert!(
        !result
            .as_ref()
            .is_err_and(|error| error.contains("within a minute")),
        "{what}: {result:?}"
    );
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_conditional_write_locks_nothing() {
    leaves(&GUARDED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_conditional_write_to_a_guest_in_javascript_locks_nothing() {
    leaves(&JAVASCRIPT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_conditional_write_to_a_guest_in_python_locks_nothing() {
    leaves(&PYTHON).await;
}

/// A client leaves in the middle of a conditional PUT. The guest reads the stream to its end, and only then learns how the body
/// ended:
///
/// 1. The host ends ifmatch's stream with an error.
/// 2. If ifmatch reports the error to the guest, and ends the guest's stream when the report was read, both wait for each other.
///    The permit lasts until its time limit, and so does the next writer's wait.
///
/// With few bytes, ifmatch has the whole of what was sent before it asks for the permit. With many, the guest reads what it gets.
async fn leaves(guest: &Compiled) {
    let gateway = Gateway::start().await;
    let folder = gateway.folder();
    let instance = guest.start(
        &Network::default(),
        &[STORE, ("IFMATCH_REGISTER", &folder), AN_HOUR],
    );
    call(
        &instance,
        "PUT /notes/a",
        &[("if-none-match", "*")],
        "whole",
    )
    .await;
    let mut tag = call(&instance, "GET /notes/a", &[], "")
        .await
        .field("etag")
        .to_owned();
    for (length, sent) in UPLOADS {
        let what = format!("{sent} of {length:?} bytes");
        let broken = ended(&instance, broken_off("/notes/a", &tag, length, sent), &what).await;
        assert!(
            broken
                .as_ref()
                .map_or(true, |answer| answer.status() >= 400),
            "{what}: {broken:?}"
        );
        let read = call(&instance, "GET /notes/a", &[], "").await;
        assert_eq!(
            (read.text().as_str(), read.field("etag")),
            ("whole", &*tag),
            "{what}: a part has replaced the whole"
        );
        // 409: others have been writing for ten seconds.
        let next = call(&instance, "PUT /notes/a", &[("if-match", &tag)], "whole").await;
        assert!(
            (200..300).contains(&next.status()),
            "{what}: the next writer got {next:?}"
        );
        call(&instance, "GET /notes/a", &[], "")
            .await
            .field("etag")
            .clone_into(&mut tag);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_write_to_another_path_ends_it() {
    let network = Network::default();
    let instance = start(&network, &[("IFMATCH_PATHS", "/docs/"), AN_HOUR]);
    for sent in [10, 200_000] {
        let broken = broken_off("/notes/a", "\"any\"", Some(1_000_000), sent);
        let broken = ended(&instance, broken, "another path").await;
        assert!(
            broken
                .as_ref()
                .map_or(true, |answer| answer.status() >= 400),
            "{broken:?}"
        );
    }
    assert_eq!(network.notes.writes("/notes/a"), 0);
}

/// A guest's body fails midway. The guest reports the error, and keeps the stream open until the report is read. If ifmatch reads the
/// stream to its end before, the response never ends. It must not look whole either.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_fails_midway_ends_with_an_error() {
    let settings = [
        ("IFMATCH_HASH_LIMIT", "100000"),
        ("IFMATCH_PATHS", "/broken/,/notes/"),
    ];
    let instance = start(&Network::default(), &settings);
    // Buffered, streamed after the hash limit, and untouched.
    for path in ["/broken/10", "/broken/1000000", "/other/broken/10"] {
        let result = ended(&instance, request(&format!("GET {path}"), &[], ""), path).await;
        let error = result.expect_err(path);
        assert!(error.contains("InternalError"), "{path}: {error}");
    }
}

/// A body in crumbs of one byte costs what it holds, not a buffer for each.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_in_crumbs_takes_no_more_memory_than_it_has_bytes() {
    const CRUMBS: usize = 3_000;
    let instance = start(&Network::default(), &[INSTANCE]);
    call(&instance, "PUT /notes/a", &[], "1").await;
    let before = instance.memory();
    let crumbs = stream::iter(0..CRUMBS).then(|_| async {
        // The next one only after the component has read this one.
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
    });
    let body: Body = StreamBody::new(crumbs)
        .map_err(|never| match never {})
        .boxed_unsync();
    let put = Request::put("http://service.example/notes/a")
        .body(body)
        .unwrap();
    assert_eq!(instance.call(put).await.unwrap().status(), 204);
    assert_eq!(
        call(&instance, "GET /notes/a", &[], "").await.text().len(),
        CRUMBS
    );
    let grown = instance.memory() - before;
    assert!(grown < 8 << 20, "{grown} bytes for {CRUMBS}");
}
