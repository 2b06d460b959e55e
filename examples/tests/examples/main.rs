//! The examples run and work as described, the client's are short, and one's register passes the conformance suite.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use http::Request;
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_testbed::{Port, postgres};
use support::{Answer, Client, Gateway, example, full, run_command};

#[path = "../../custom_register.rs"]
pub mod custom_register;
mod notes;

/// Timeout for the start of an example.
const TIMEOUT: Duration = Duration::from_mins(2);

/// An example that runs on a port until it is dropped.
struct Example {
    child: Child,
    _port: Port,
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example, built.
fn program(name: &str) -> Command {
    Command::new(example(name))
}

/// Starts a server on a free port.
async fn serve(name: &str) -> (Example, Client) {
    serve_with(name, &[]).await
}

/// Starts a server on a free port, with more arguments.
async fn serve_with(name: &str, args: &[&str]) -> (Example, Client) {
    let port = Port::claim();
    let client = Client::new(port.address());
    let child = program(name)
        .arg(port.address().to_string())
        .args(args)
        .spawn()
        .expect("the example starts");
    let mut example = Example { child, _port: port };
    let up = async {
        while client
            .try_send(Request::get("/").body(full("")).expect("a request"))
            .await
            .is_err()
        {
            let end = example.child.try_wait().expect("a child");
            assert_eq!(end, None, "{name} has ended");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, up)
        .await
        .expect("the example listens");
    (example, client)
}

/// Runs an example to its end, and returns its output.
fn finish(name: &str, args: &[&str]) -> String {
    let end = run_command(program(name).args(args));
    assert!(end.status.success(), "{name}: {end:#?}");
    end.stdout
}

#[tokio::test]
async fn quickstart_loses_no_update() {
    let (_example, client) = serve("quickstart").await;
    let tag = client.get("/note", &[]).await.expect(200).etag().to_owned();
    client
        .get("/note", &[("if-none-match", &tag)])
        .await
        .expect(304);
    client
        .put("/note", &[("if-match", &tag)], "mine")
        .await
        .expect(200);
    client
        .put("/note", &[("if-match", &tag)], "theirs")
        .await
        .expect(412);
    assert_eq!(client.get("/note", &[]).await.text(), "mine");
}

#[tokio::test]
async fn conflicts_are_shown_by_route() {
    let (_example, client) = serve("conflicts").await;
    client
        .put("/notes/a", &[("if-none-match", "*")], "one")
        .await
        .expect(200);
    let tag = client
        .get("/notes/a", &[])
        .await
        .expect(200)
        .etag()
        .to_owned();
    client
        .put("/notes/a", &[("if-match", &tag)], "two")
        .await
        .expect(200);
    assert_eq!(client.get("/conflicts", &[]).await.text(), "{}");
    for _ in 0..2 {
        client
            .put("/notes/a", &[("if-match", &tag)], "lost")
            .await
            .expect(412);
    }
    let answer = client.get("/conflicts", &[]).await;
    let shown = answer.text();
    assert!(
        shown.contains(r#"{"PUT /notes/{id} precondition-failed":{"count":2,"#),
        "{shown}"
    );
}

#[tokio::test]
async fn hyper_service_answers_conditions() {
    let (_example, client) = serve("hyper_service").await;
    let first: Answer = client.get("/", &[]).await.expect(200);
    client
        .get("/", &[("if-none-match", first.etag())])
        .await
        .expect(304);
    client
        .put("/", &[("if-match", "\"other\"")], "x")
        .await
        .expect(412);
    client
        .put("/", &[("if-match", first.etag())], "x")
        .await
        .expect(405);
}

#[test]
fn documents_merges_both_edits() {
    let shown = finish("documents", &[]);
    let expected = [
        "428",
        "where=Zurich: 412",
        "\"when\":\"Tuesday\"",
        "where=Zurich: 204",
    ];
    for text in expected {
        assert!(shown.contains(text), "{text} in {shown}");
    }
}

#[test]
fn leased_update_has_one_holder_and_survives_a_crash() {
    let shown = finish("leased_update", &[]);
    let expected = [
        "Anna acquires: 201",
        "Bert acquires: 409 LeaseAlreadyPresent",
        "Bert sells 3: 412 LeaseIdMissing",
        "Anna sells 4: 204",
        "5 seconds later",
        "Bert acquires: 201",
        "Anna's hanging request: 503",
        "Anna sells 2: 412 LeaseIdMismatchWithBlobOperation",
        "in the end: sold 7, in stock 3",
    ];
    for text in expected {
        assert!(shown.contains(text), "{text} in {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_lose_no_update_with_a_shared_register() {
    let database = postgres::start(&[]).await;
    let shown = tokio::task::block_in_place(|| finish("replicas", &[&database.url()]));
    for name in ["one-shared-register", "by-hand"] {
        let line = shown
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a run");
        assert!(
            line.contains(": 320 updates acknowledged in ") && line.ends_with(", 0 lost"),
            "{shown}"
        );
    }
    let separate = shown
        .lines()
        .find(|line| line.starts_with("a-register-each: "))
        .expect("the second run");
    assert!(
        !separate.ends_with(" 0 lost"),
        "the control loses nothing, so the test proves nothing: {shown}"
    );
}

/// Maximum number of lines of an example.
const MAX_LINES: usize = 60;

/// Each example, and lines that it must print.
const EXAMPLES: [(&str, &[&str]); 12] = [
    (
        "optimistic_update",
        &["Bert must read again", "draft, edited by Anna"],
    ),
    ("pessimistic_update", &["2 lines, written under a lock"]),
    ("retry_with_backoff", &["80 visits"]),
    ("cached_download", &["unchanged: true", "changed: true"]),
    (
        "cached_fetch",
        &[
            "rain, from the cache: true",
            "sun, from the cache: false",
            "sun, from the cache: true",
        ],
    ),
    (
        "leader_election",
        &["one leads", "two leads", "different terms: true"],
    ),
    (
        "distributed_lock",
        &["a second holder: false", "a larger token: true"],
    ),
    (
        "work_queue",
        &["1.jpg after 1 attempts", "broken.jpg after 3 attempts"],
    ),
    ("configuration", &["limit 10", "limit 20"]),
    ("counter", &["40 hits"]),
    ("several_documents", &["sum 0"]),
    ("replace_by_tag", &["saved over the milk: false"]),
];

#[test]
fn each_example_runs_against_the_gateway() {
    let gateway = Gateway::on_folder(&[]);
    for (name, expected) in EXAMPLES {
        let shown = finish(name, &[&gateway.url("/box")]);
        for line in expected {
            assert!(
                shown.lines().any(|shown| shown == *line),
                "{name}: {line:?} is not in {shown}"
            );
        }
    }
}

#[test]
fn each_example_is_short() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("client");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines", path.display());
        files += 1;
    }
    assert_eq!(files, EXAMPLES.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_register_conforms() {
    let folder = tempfile::tempdir().expect("a folder");
    let register = custom_register::FolderRegister::open(folder.path()).expect("a register");
    conformance::run(register, RaceSize::new(8, 5)).await;
}
