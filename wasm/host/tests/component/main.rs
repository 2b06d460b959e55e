//! The component in front of a guest that knows nothing of conditions, in one instance and in several.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod faults;
mod gateway;
mod wire;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use component_host::{
    Answer, Body, Compiled, Instance, LIMIT, Network, Strategy, compose, request,
};
use futures_util::future::join_all;
use futures_util::stream;
use gateway::Gateway;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

/// The compositions, each compiled once.
static GUARDED: LazyLock<Compiled> = LazyLock::new(|| with_guest("IFMATCH_GUEST"));
static JAVASCRIPT: LazyLock<Compiled> = LazyLock::new(|| with_guest("IFMATCH_JAVASCRIPT_GUEST"));
static PYTHON: LazyLock<Compiled> = LazyLock::new(|| with_guest("IFMATCH_PYTHON_GUEST"));
/// The Rust guest's store.
const STORE: (&str, &str) = ("STORE", "http://notes");
const INSTANCE: (&str, &str) = ("IFMATCH_REGISTER", "instance");

/// Composes the component with the guest of this variable.
fn with_guest(guest: &str) -> Compiled {
    let read = |name: &str| {
        let path = std::env::var(name)
            .unwrap_or_else(|_| panic!("{name}: run `cargo xtask ci --only component`"));
        std::fs::read(path).unwrap()
    };
    Compiled::new(
        &compose(&read("IFMATCH_COMPONENT"), &read(guest)),
        Strategy::Winch,
    )
}

fn start(network: &Network, settings: &[(&str, &str)]) -> Instance {
    GUARDED.start(network, &[&[STORE], settings].concat())
}

async fn call(
    instance: &Instance,
    head: &str,
    fields: &[(&str, &str)],
    content: &'static str,
) -> Answer {
    instance
        .call(request(head, fields, content))
        .await
        .unwrap_or_else(|error| panic!("{head}: {error}\n{}", instance.log().text()))
}

/// Waits until something is so.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_get_tags_and_are_conditional() {
    let network = Network::default();
    network.notes.put("/notes/a", "hello, component");
    let instance = start(&network, &[]);
    let whole = call(&instance, "GET /notes/a", &[], "").await;
    assert_eq!(
        (whole.status(), whole.text().as_str()),
        (200, "hello, component")
    );
    let tag = whole.field("etag").to_owned();
    assert!(tag.starts_with('"') && tag.len() > 2, "{whole:?}");
    let same = call(&instance, "GET /notes/a", &[("if-none-match", &tag)], "").await;
    assert_eq!(
        (same.status(), same.field("etag"), same.content.len()),
        (304, &*tag, 0)
    );
    let other = start(&network, &[]);
    let same = call(&other, "GET /notes/a", &[("if-none-match", &tag)], "").await;
    assert_eq!(same.status(), 304, "any instance gives the same tag");
    // A server reads no body after this head: its length is GET's.
    let head = instance
        .send(request("HEAD /notes/a", &[], ""))
        .await
        .unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["etag"], tag.as_str());
    let part = call(
        &instance,
        "GET /notes/a",
        &[("range", "bytes=0-4"), ("if-range", &tag)],
        "",
    )
    .await;
    assert_eq!((part.status(), part.text().as_str()), (206, "hello"));
    assert_eq!(part.field("content-range"), "bytes 0-4/16");
    let stale = call(&instance, "GET /notes/a", &[("if-match", "\"stale\"")], "").await;
    assert_eq!(stale.status(), 412);
    assert_eq!(
        call(&instance, "GET /notes/none", &[], "").await.status(),
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_in_python_gets_the_same() {
    let instance = PYTHON.start(&Network::default(), &[INSTANCE]);
    assert_eq!(
        call(&instance, "PUT /a", &[("if-none-match", "*")], "hello")
            .await
            .status(),
        204
    );
    let whole = call(&instance, "GET /a", &[], "").await;
    assert_eq!((whole.status(), whole.text().as_str()), (200, "hello"));
    let tag = whole.field("etag");
    assert_eq!(
        call(&instance, "GET /a", &[("if-none-match", tag)], "")
            .await
            .status(),
        304
    );
    assert_eq!(
        call(&instance, "GET /a", &[("range", "bytes=1-2")], "")
            .await
            .text(),
        "el"
    );
    assert_eq!(
        call(&instance, "PUT /a", &[("if-match", "\"stale\"")], "x")
            .await
            .status(),
        412
    );
    let same = [("if-match", tag)];
    let racers = join_all((0..16).map(|_| call(&instance, "PUT /a", &same, "won"))).await;
    assert_eq!(
        racers
            .iter()
            .filter(|answer| answer.status() == 204)
            .count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_register_a_conditional_write_is_refused_in_words() {
    let network = Network::default();
    network.notes.put("/notes/a", "1");
    let instance = start(&network, &[]);
    let tag = call(&instance, "GET /notes/a", &[], "")
        .await
        .field("etag")
        .to_owned();
    for (name, value) in [
        ("if-match", &*tag),
        ("if-none-match", "*"),
        ("if-match", "*"),
    ] {
        let refused = call(&instance, "PUT /notes/a", &[(name, value)], "2").await;
        assert_eq!(refused.status(), 503, "{refused:?}");
        assert!(
            refused.text().contains("IFMATCH_REGISTER"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(network.notes.get("/notes/a").unwrap(), "1");
    let unconditional = call(&instance, "PUT /notes/a", &[], "2").await;
    assert!(
        (200..300).contains(&unconditional.status()),
        "nothing was asked for: {unconditional:?}"
    );
    assert_eq!(network.notes.get("/notes/a").unwrap(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_are_named_in_the_answer_and_in_the_log() {
    for (name, value, says) in [
        (
            "IFMATCH_HASH_LIMIT",
            "1MiB",
            "IFMATCH_HASH_LIMIT must be a number of bytes",
        ),
        (
            "IFMATCH_REGISTER",
            "redis://host",
            "IFMATCH_REGISTER must be the URL",
        ),
    ] {
        let instance = start(&Network::default(), &[(name, value)]);
        for _ in 0..2 {
            let answer = call(&instance, "GET /notes/a", &[], "").await;
            assert_eq!(answer.status(), 500);
            assert!(answer.text().contains(says), "{}", answer.text());
        }
        eventually("the log", || instance.log().text().contains(says)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_conditional_in_one_instance_if_that_is_asked_for() {
    let network = Network::default();
    let instance = start(
        &network,
        &[INSTANCE, ("IFMATCH_REQUIRE_CONDITIONS", "true")],
    );
    let created = call(&instance, "PUT /notes/a", &[("if-none-match", "*")], "1").await;
    assert!((200..300).contains(&created.status()), "{created:?}");
    eventually("a warning", || {
        instance.log().text().contains("only within one instance")
    })
    .await;
    assert_eq!(
        call(&instance, "PUT /notes/a", &[("if-none-match", "*")], "x")
            .await
            .status(),
        412
    );
    assert_eq!(
        call(&instance, "PUT /notes/a", &[("if-match", "\"stale\"")], "x")
            .await
            .status(),
        412
    );
    assert_eq!(
        call(&instance, "PUT /notes/a", &[], "x").await.status(),
        428
    );
    let tag = call(&instance, "GET /notes/a", &[], "")
        .await
        .field("etag")
        .to_owned();
    let second = call(&instance, "PUT /notes/a", &[("if-match", &tag)], "2").await;
    assert!(
        (200..300).contains(&second.status()) && second.field("etag") != tag,
        "{second:?}"
    );
    assert_eq!(network.notes.get("/notes/a").unwrap(), "2");
    // Several writers in the one instance: tasks wait for each other.
    let tag = second.field("etag");
    let same = [("if-match", tag)];
    let racers = (0..16).map(|_| call(&instance, "PUT /notes/a", &same, "3"));
    let wins = join_all(racers)
        .await
        .iter()
        .filter(|answer| answer.status() != 412)
        .count();
    assert_eq!(wins, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_other_paths_pass_untouched() {
    let network = Network::default();
    network.notes.put("/notes/a", "1");
    let instance = start(&network, &[("IFMATCH_PATHS", "/notes/b,/docs/")]);
    let answer = call(&instance, "GET /notes/a", &[], "").await;
    assert_eq!(
        (
            answer.status(),
            answer.field("etag"),
            answer.text().as_str()
        ),
        (200, "", "1")
    );
    assert_eq!(
        call(&instance, "PUT /notes/a", &[("if-match", "\"stale\"")], "2")
            .await
            .status(),
        204
    );
}

/// Of sixteen writers at two instances, one wins, again and again. The guest overwrites whatever there is.
#[tokio::test(flavor = "multi_thread")]
async fn of_all_writers_at_two_instances_with_a_register_one_wins() {
    let (network, gateway) = (Network::default(), Gateway::start().await);
    let register = [("IFMATCH_REGISTER", gateway.folder())];
    let register = register
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let instances = [start(&network, &register), start(&network, &register)];
    network.notes.put("/notes/a", "0");
    let mut tag = call(&instances[0], "GET /notes/a", &[], "")
        .await
        .field("etag")
        .to_owned();
    for round in 0..1_000 {
        let attempt = |writer: usize| {
            let (instance, content) = (&instances[writer % 2], format!("{round} by {writer}"));
            faults::write(instance, &tag, content, "two instances")
        };
        let won: Vec<_> = join_all((0..16).map(attempt))
            .await
            .into_iter()
            .flatten()
            .collect();
        let [(content, next)] = &won[..] else {
            panic!("round {round}: {} writers have won: {won:?}", won.len())
        };
        assert_eq!(network.notes.get("/notes/a").unwrap(), *content);
        assert!(!next.is_empty() && *next != tag, "{next}");
        next.clone_into(&mut tag);
    }
}

/// Each call is a connection in most hosts, so the calls are the price. `crates/ifmatch/tests/layer/register_calls.rs` has the rules.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_calls_the_register_once_in_a_while_and_a_write_twice() {
    let (network, gateway) = (Network::default(), Gateway::start().await);
    let folder = gateway.folder();
    let settings = [("IFMATCH_REGISTER", folder.as_str())];
    let [one, two] = [start(&network, &settings), start(&network, &settings)];
    let created = call(&one, "PUT /notes/a", &[("if-none-match", "*")], "1").await;
    assert_eq!(created.status(), 204);
    let tag = call(&one, "GET /notes/a", &[], "")
        .await
        .field("etag")
        .to_owned();
    network.calls();
    let begin = Instant::now();
    for _ in 0..10 {
        assert_eq!(call(&one, "GET /notes/a", &[], "").await.text(), "1");
        assert_eq!(
            call(&one, "GET /notes/a", &[("if-none-match", &tag)], "")
                .await
                .status(),
            304
        );
    }
    // Once in ten seconds.
    let (calls, most) = (network.calls(), begin.elapsed().as_secs() / 10 + 1);
    assert!(calls as u64 <= most, "{calls} calls by 20 reads");
    let written = call(&one, "PUT /notes/a", &[("if-match", &tag)], "2").await;
    assert_eq!(
        (written.status(), network.calls()),
        (204, 2),
        "a write with a condition"
    );
    assert_eq!(
        (
            call(&one, "PUT /notes/a", &[], "3").await.status(),
            network.calls()
        ),
        (204, 2),
        "and one without"
    );
    assert_eq!(call(&two, "PUT /notes/a", &[], "4").await.status(), 204);
    let tag = call(&two, "GET /notes/a", &[], "")
        .await
        .field("etag")
        .to_owned();
    network.calls();
    // Three calls of the register: the first one is refused, and takes a second request to read what there is.
    let written = call(&one, "PUT /notes/a", &[("if-match", &tag)], "5").await;
    assert_eq!(
        (written.status(), network.calls()),
        (204, 4),
        "after another instance's write"
    );
}

/// What two instances without a register can't do: this documents the loss.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_memory_of_each_instance_two_writers_win() {
    let network = Network::default();
    let instances = [start(&network, &[INSTANCE]), start(&network, &[INSTANCE])];
    for round in 0..1_000 {
        network.notes.put("/notes/a", format!("{round}"));
        let tag = call(&instances[0], "GET /notes/a", &[], "")
            .await
            .field("etag")
            .to_owned();
        let same = [("if-match", tag.as_str())];
        let put = |writer: usize| call(&instances[writer % 2], "PUT /notes/a", &same, "mine");
        let [one, two] = [put(0), put(1)];
        let (one, two) = tokio::join!(one, two);
        if [&one, &two]
            .iter()
            .all(|answer| (200..300).contains(&answer.status()))
        {
            return;
        }
    }
    panic!("in 1,000 rounds, no two writers have won: is the documentation wrong?");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_register_that_is_down_fails_writes_and_not_reads() {
    let network = Network::default();
    network.notes.put("/notes/a", "1");
    let settings = [("IFMATCH_REGISTER", "http://127.0.0.1:1/records/notes")];
    let instance = start(&network, &settings);
    let read = call(&instance, "GET /notes/a", &[], "").await;
    assert_eq!((read.status(), read.text().as_str()), (200, "1"));
    for _ in 0..3 {
        let write = call(&instance, "PUT /notes/a", &[("if-match", "\"x\"")], "2").await;
        assert_eq!(
            (write.status(), network.notes.get("/notes/a").unwrap()),
            (503, Bytes::from("1"))
        );
    }
    let logged = || {
        let text = instance.log().text();
        text.matches("http://127.0.0.1:1/records/notes/ can't be used")
            .count()
    };
    eventually("the log", || logged() > 0).await;
    // The lines of four calls would be there by now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(logged(), 1, "each call says the same");
}

/// A body of 64 MiB passes through an instance whose memory stays below 16 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_hash_limit_streams() {
    const LENGTH: usize = 64 << 20;
    let instance = start(&Network::default(), &[("IFMATCH_HASH_LIMIT", "65536")]);
    let mut response = instance
        .send(request(&format!("GET /large/{LENGTH}"), &[], ""))
        .await
        .unwrap();
    let mut length = 0;
    while let Some(frame) = response.body_mut().frame().await {
        length += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(length, LENGTH);
    assert!(
        instance.memory() < 16 << 20,
        "the components have {} bytes of memory",
        instance.memory()
    );
}

/// An instance's own record knows nothing of another one's writes, so it must name no version that it can't hash, and no date.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_shared_register_a_long_body_is_never_confirmed() {
    for register in [&[][..], &[INSTANCE]] {
        let network = Network::default();
        let settings = [register, &[("IFMATCH_HASH_LIMIT", "1000")]].concat();
        let [one, two] = [start(&network, &settings), start(&network, &settings)];
        network.notes.put("/notes/a", "1".repeat(2000));
        let mut read = call(&one, "GET /notes/a", &[], "").await;
        for _ in 0..2 {
            read = call(&one, "GET /notes/a", &[], "").await;
        }
        let written = call(&two, "PUT /notes/a", &[], "2".repeat(2000).leak()).await;
        assert!((200..300).contains(&written.status()), "{written:?}");
        for (name, condition) in [
            ("etag", "if-none-match"),
            ("last-modified", "if-modified-since"),
        ] {
            let value = Some(read.field(name))
                .filter(|value| !value.is_empty())
                .unwrap_or("\"none\"");
            let again = call(&one, "GET /notes/a", &[(condition, value)], "").await;
            assert_eq!(
                (again.status(), &again.content[..1]),
                (200, &b"2"[..]),
                "{register:?} {again:?}"
            );
        }
    }
}

/// Both bodies stream at once: the guest answers with what it reads, before it has read all. The trailers pass, too.
#[tokio::test(flavor = "multi_thread")]
async fn both_bodies_stream_at_once_with_their_trailers() {
    const CHUNK: usize = 100_000;
    let instance = start(&Network::default(), &[("IFMATCH_HASH_LIMIT", "1000")]);
    let (sender, receiver) = tokio::sync::mpsc::channel::<Frame<Bytes>>(1);
    let frames = stream::unfold(receiver, |mut receiver| async {
        let frame = receiver.recv().await?;
        Some((Ok(frame), receiver))
    });
    let body: Body = StreamBody::new(frames).boxed_unsync();
    let echo = Request::post("http://service.example/echo")
        .body(body)
        .unwrap();
    let writing = tokio::spawn(async move {
        for _ in 0..50 {
            sender
                .send(Frame::data(vec![b'x'; CHUNK].into()))
                .await
                .unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert(
            HeaderName::from_static("x-end"),
            HeaderValue::from_static("yes"),
        );
        sender.send(Frame::trailers(trailers)).await.unwrap();
    });
    let answer = instance.call(echo).await.unwrap();
    writing.await.unwrap();
    assert_eq!((answer.status(), answer.content.len()), (200, 50 * CHUNK));
    assert_eq!(
        answer.trailers.get("x-end").map(String::as_str),
        Some("yes"),
        "{:?}",
        answer.trailers
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_the_guests_body() {
    let network = Network::default();
    let instance = start(&network, &[("IFMATCH_HASH_LIMIT", "1000")]);
    let mut response = instance
        .send(request("GET /endless", &[], ""))
        .await
        .unwrap();
    assert!(response.body_mut().frame().await.unwrap().is_ok());
    drop(response);
    eventually("the guest notices", || {
        network.notes.get("/notes/gone").is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_guest_passes_and_the_next_write_goes_on() {
    let network = Network::default();
    let instance = start(&network, &[INSTANCE]);
    let error = instance
        .call(request("GET /fail", &[], ""))
        .await
        .unwrap_err();
    assert!(error.contains("on purpose"), "{error}");
    let error = instance
        .call(request("PUT /fail", &[], "x"))
        .await
        .unwrap_err();
    assert!(error.contains("on purpose"), "{error}");
    assert_eq!(
        call(&instance, "PUT /notes/a", &[], "1").await.status(),
        204
    );
}
