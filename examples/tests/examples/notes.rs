//! The service of docs/howto/axum.md, as its clients see it.

use std::time::Duration;

use http::Request;
use support::{Answer, Client, full};

use crate::{Example, TIMEOUT, serve_with};

const GUIDE: &str = include_str!("../../../docs/howto/axum.md");
const SERVICE: &str = include_str!("../../notes.rs");

struct Service {
    client: Client,
    _example: Example,
    _folder: tempfile::TempDir,
}

impl Service {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let database = format!(
            "sqlite:{}?mode=rwc",
            folder.path().join("notes.db").display()
        );
        let (example, client) = serve_with("notes", &[&database]).await;
        Self {
            client,
            _example: example,
            _folder: folder,
        }
    }

    async fn send(&self, line: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", "Bearer secret");
        request = request.header("content-type", "application/json");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.client
            .send(request.body(full(body.to_owned())).expect("a request"))
            .await
    }

    /// Waits until the job has changed the note, and returns its tag.
    async fn signed(&self, path: &str) -> String {
        let signed = async {
            loop {
                let note = self.send(&format!("GET {path}"), &[], "").await;
                if note.text().contains("(the team)") {
                    return note.header("etag").to_owned();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, signed)
            .await
            .expect("the job signs the note")
    }
}

/// Returns the value of a header field, or the empty string without one.
fn field<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

const NOTE: &str = r#"{"title":"groceries","text":"bread (the team)"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_the_guide_are_true() {
    let service = Service::start().await;
    let anonymous = service
        .client
        .send(
            Request::get("/v1/notes/1")
                .body(full(""))
                .expect("a request"),
        )
        .await;
    assert_eq!(
        anonymous.status, 401,
        "authentication is outside of the layer"
    );
    let created = service.send("POST /v1/notes", &[], NOTE).await;
    assert_eq!(
        (
            created.status.as_u16(),
            created.header("etag"),
            created.header("location")
        ),
        (201, "\"1\"", "/v1/notes/1")
    );
    for (line, fields, status, tag) in [
        ("GET /v1/notes/1", &[][..], 200, "\"1\""),
        (
            "GET /v1/notes/1",
            &[("if-none-match", "\"1\"")],
            304,
            "\"1\"",
        ),
        ("PUT /v1/notes/1", &[], 428, ""),
        ("PUT /v1/notes/1", &[("if-match", "\"1\"")], 200, "\"2\""),
        ("PUT /v1/notes/1", &[("if-match", "\"1\"")], 412, "\"2\""),
        (
            "PUT /v1/notes/1",
            &[("if-match", "\"1\", \"2\"")],
            200,
            "\"3\"",
        ),
        ("PUT /v1/notes/1", &[("if-none-match", "*")], 412, "\"3\""),
        ("PUT /v1/notes/7", &[("if-match", "\"1\"")], 412, ""),
        ("DELETE /v1/notes/1", &[("if-match", "\"2\"")], 412, "\"3\""),
        ("DELETE /v1/notes/1", &[("if-match", "\"3\"")], 204, ""),
        ("GET /v1/notes/1", &[], 404, ""),
    ] {
        let answer = service.send(line, fields, NOTE).await;
        assert_eq!(
            (answer.status.as_u16(), field(&answer, "etag")),
            (status, tag),
            "{line} {fields:?}: {answer:?}"
        );
        let is_own = field(&answer, "content-type") == "application/json"
            && answer.text().contains("\"error\":{\"code\"");
        assert!(status < 400 || is_own, "{line} {fields:?}: {answer:?}");
    }
    let list = service.send("GET /v1/notes", &[], "").await;
    let again = service
        .send(
            "GET /v1/notes",
            &[("if-none-match", list.header("etag"))],
            "",
        )
        .await;
    assert_eq!(
        (list.status.as_u16(), again.status.as_u16()),
        (200, 304),
        "a list has the hash of its content"
    );
    let page = service
        .send("GET /v1/notes", &[("origin", "https://app.example")], "")
        .await;
    let exposed = page.header("access-control-expose-headers");
    for name in ["etag", "location", "retry-after"] {
        assert!(exposed.contains(name), "{name}: {page:?}");
    }
    // A wildcard would permit no token.
    let asked = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "PUT"),
    ];
    let preflight = service.send("OPTIONS /v1/notes/1", &asked, "").await;
    let allowed = field(&preflight, "access-control-allow-headers");
    for name in ["authorization", "content-type", "if-match", "if-none-match"] {
        assert!(allowed.contains(name), "{name}: {preflight:?}");
    }
}

/// Compressed responses have the rows' tags, so a browser can save.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_note_is_saved_by_its_tag() {
    let service = Service::start().await;
    let long = format!(
        r#"{{"title":"long","text":"{} (the team)"}}"#,
        "text ".repeat(100)
    );
    service.send("POST /v1/notes", &[], &long).await;
    let note = service
        .send("GET /v1/notes/1", &[("accept-encoding", "gzip")], "")
        .await;
    assert_eq!(note.header("content-encoding"), "gzip");
    let tag = note.header("etag").to_owned();
    let fields = [("accept-encoding", "gzip"), ("if-none-match", &*tag)];
    assert_eq!(
        service.send("GET /v1/notes/1", &fields, "").await.status,
        304
    );
    assert_eq!(
        service
            .send("PUT /v1/notes/1", &[("if-match", &tag)], NOTE)
            .await
            .status,
        200
    );
    assert_eq!(
        service
            .send("PUT /v1/notes/1", &[("if-match", &tag)], NOTE)
            .await
            .status,
        412
    );
}

/// The job writes between a client's GET and its PUT, past the layer.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_by_the_job_is_not_lost() {
    let service = Service::start().await;
    let created = service
        .send(
            "POST /v1/notes",
            &[],
            r#"{"title":"groceries","text":"bread"}"#,
        )
        .await;
    let tag = service.signed("/v1/notes/1").await;
    let stale = service
        .send(
            "PUT /v1/notes/1",
            &[("if-match", created.header("etag"))],
            NOTE,
        )
        .await;
    assert_eq!(
        (stale.status.as_u16(), created.header("etag"), &*tag),
        (412, "\"1\"", "\"2\"")
    );
    assert_eq!(
        service
            .send("PUT /v1/notes/1", &[("if-match", &tag)], NOTE)
            .await
            .status,
        200
    );
}

/// A PUT that creates or replaces: of sixteen writers on each condition, one wins.
#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_created_once_and_replaced_once() {
    let service = Service::start().await;
    assert_eq!(
        service
            .send("PUT /v1/drafts/plan", &[], "plan")
            .await
            .status,
        428
    );
    assert_eq!(
        service
            .send("PUT /v1/drafts/plan", &[("if-match", "\"1\"")], "plan")
            .await
            .status,
        412
    );
    let race = async |condition: (&str, &str)| {
        let texts: Vec<String> = (0..16)
            .map(|number| format!("{condition:?} {number}"))
            .collect();
        let writers = texts.iter().map(|text| {
            service.send(
                "PUT /v1/drafts/plan",
                std::slice::from_ref(&condition),
                text,
            )
        });
        let answers = futures_util::future::join_all(writers).await;
        let won: Vec<_> = texts
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.status == 200)
            .collect();
        let refused = answers.iter().filter(|answer| answer.status == 412).count();
        let draft = service.send("GET /v1/drafts/plan", &[], "").await;
        let [(text, answer)] = won[..] else {
            panic!("{} writers have won: {answers:?}", won.len())
        };
        assert_eq!(
            (refused, draft.text(), draft.header("etag")),
            (15, &**text, answer.header("etag"))
        );
        draft.header("etag").to_owned()
    };
    let created = race(("if-none-match", "*")).await;
    let replaced = race(("if-match", &created)).await;
    assert_ne!(created, replaced);
    let late = service
        .send("PUT /v1/drafts/plan", &[("if-match", &created)], "late")
        .await;
    assert_eq!(
        (late.status.as_u16(), late.header("etag")),
        (412, &*replaced),
        "the 412 has the current tag"
    );
}

/// Every block of the page that shows a part of the service does so literally, apart from the lines that it is broken into.
#[test]
fn the_guide_shows_the_service_as_it_is() {
    let squeezed = |text: &str| {
        let text: String = text.split_whitespace().collect();
        [")", "}", "]", ">"]
            .iter()
            .fold(text, |text, end| text.replace(&format!(",{end}"), end))
    };
    let service = squeezed(SERVICE);
    let blocks: Vec<_> = GUIDE
        .split("```rust,ignore\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .collect();
    assert!(blocks.len() >= 4, "the page shows the service in parts");
    for block in blocks {
        assert!(
            service.contains(&squeezed(block)),
            "not in examples/notes.rs:\n{block}"
        );
    }
}
