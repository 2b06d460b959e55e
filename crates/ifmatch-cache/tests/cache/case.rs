//! The cases in tests/data/cases: scripted requests, origin responses and expected results. Shared by the tests of this
//! crate and the whole proxy's.
//!
//! A file is a list of cases. A case has an `id`, the section of an RFC in `rfc`, and `steps`. `"required": false` marks
//! behaviour that the RFC leaves to the cache. Members of a step:
//!
//! | member | meaning |
//! |---|---|
//! | `wait` | seconds before the step |
//! | `request` | header fields; `:method`, `:path` |
//! | `origin` | the origin's response: header fields; `:status`, `:body`; or `"fails"`. If absent, the origin must not be asked |
//! | `from` | source of the response: `origin`; `cache`; `validated`: the cache after a 304; `failure`: 502 or 504; `any` |
//! | `status`, `body` | expected status and body; default to the source's; `*` matches any body |
//! | `fields` | expected header fields; null: absent |
//! | `sent` | header fields that the origin must receive; null: absent |
//!
//! A value is a string, or a list of field lines. `{+60}` in it is replaced by the date in a minute.

use std::fs;
use std::path::Path;

use http::{HeaderMap, StatusCode};
use ifmatch_core::date::HttpDate;
use serde_json::{Map, Value};

/// Start time of cases, in 2025.
pub(crate) const START: i64 = 1_750_000_000;

/// Header fields, in order.
pub(crate) type Pairs = Vec<(String, String)>;

/// A case.
pub(crate) struct Case {
    /// File, id and RFC.
    pub(crate) name: String,
    /// Steps in order.
    pub(crate) steps: Vec<Value>,
}

/// A client's request.
pub(crate) struct Asking {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: Pairs,
}

/// The origin's reaction to a request.
#[derive(Clone)]
pub(crate) enum Telling {
    /// Closes the connection.
    Fails,
    Answers {
        status: u16,
        fields: Pairs,
        body: String,
    },
}

/// The client's response, and the requests to the origin.
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// An error if the body ended early.
    pub(crate) body: Result<String, String>,
    /// Number of requests to the origin.
    pub(crate) times: usize,
    /// Header fields of the last request to the origin.
    pub(crate) seen: Option<HeaderMap>,
}

/// The origin's last response with content.
#[derive(Default)]
pub(crate) struct Last {
    status: u16,
    body: String,
}

/// Returns all cases in the folder.
pub(crate) fn all(folder: &Path) -> Vec<Case> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let cases = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let file = file.file_stem().unwrap().to_str().unwrap().to_owned();
        cases.into_iter().map(move |case| Case {
            name: format!(
                "{file}/{} ({})",
                case["id"].as_str().unwrap(),
                case["rfc"].as_str().unwrap()
            ),
            steps: case["steps"].as_array().unwrap().clone(),
        })
    });
    let cases: Vec<Case> = cases.collect();
    assert!(cases.len() >= 350, "only {} cases", cases.len());
    cases
}

/// Fails if any case did.
pub(crate) fn report(count: usize, failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} of {count} cases fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Returns the seconds before a step. Also checks the names of its members.
pub(crate) fn wait(step: &Value) -> u64 {
    let known = [
        "wait", "request", "origin", "from", "status", "body", "fields", "sent",
    ];
    for name in step.as_object().unwrap().keys() {
        assert!(
            known.contains(&name.as_str()),
            "no such member of a step: {name}"
        );
    }
    step["wait"].as_u64().unwrap_or_default()
}

/// Returns the client's request of a step.
pub(crate) fn asking(step: &Value, now: i64) -> Asking {
    let none = Map::new();
    let fields = step["request"].as_object().unwrap_or(&none);
    let text = |name: &str, default: &str| {
        fields
            .get(name)
            .map_or(default, |text| text.as_str().unwrap())
            .to_owned()
    };
    Asking {
        method: text(":method", "GET"),
        path: text(":path", "/"),
        fields: pairs(fields, now),
    }
}

/// Returns the origin's reaction in a step. A 304 doesn't change the last response.
pub(crate) fn telling(step: &Value, last: &mut Last, now: i64) -> Option<Telling> {
    match &step["origin"] {
        Value::Null => None,
        Value::String(word) if word == "fails" => Some(Telling::Fails),
        Value::Object(fields) => {
            let status = fields
                .get(":status")
                .map_or(200, |status| status.as_u64().unwrap());
            let status = u16::try_from(status).unwrap();
            let default = if status == 304 { "" } else { "hello" };
            let body = fields
                .get(":body")
                .map_or(default, |body| body.as_str().unwrap())
                .to_owned();
            if status != 304 {
                *last = Last {
                    status,
                    body: body.clone(),
                };
            }
            Some(Telling::Answers {
                status,
                fields: pairs(fields, now),
                body,
            })
        }
        other => panic!("origin: {other}"),
    }
}

/// Compares the client's response with the expected one.
pub(crate) fn judge(step: &Value, got: &Got, last: &Last, now: i64) -> Result<(), String> {
    let says = |part: &str| cache_status(&got.headers).contains(part);
    let sent = |name: &str| {
        got.seen
            .as_ref()
            .is_some_and(|seen| seen.contains_key(name))
    };
    let validated = sent("if-none-match") || sent("if-modified-since");
    let from = step["from"].as_str().unwrap();
    let right = match from {
        "cache" => got.times == 0,
        "validated" => got.times == 1 && validated && says("fwd-status=304"),
        "origin" => got.times == 1 && says("fwd=") && !says("fwd-status"),
        "failure" => return fails(got),
        "any" => true,
        other => panic!("from: {other}"),
    };
    if !right {
        return Err(format!(
            "not from {from}: the origin was asked {} times; {:?}",
            got.times, got.headers
        ));
    }
    judge_answer(step, got, last)?;
    if let Some(fields) = step.get("fields") {
        judge_fields(fields, &got.headers, now)?;
    }
    match step.get("sent") {
        Some(sent) => judge_fields(sent, got.seen.as_ref().ok_or("nothing was sent")?, now),
        None => Ok(()),
    }
}

fn fails(got: &Got) -> Result<(), String> {
    match got.status.as_u16() {
        502 | 504 => Ok(()),
        status => Err(format!("{status}, and no failure: {:?}", got.headers)),
    }
}

/// Returns the `Cache-Status` member of the cache closest to the client.
fn cache_status(headers: &HeaderMap) -> &str {
    headers
        .get_all("cache-status")
        .iter()
        .next_back()
        .map_or("", |line| line.to_str().unwrap())
}

fn judge_answer(step: &Value, got: &Got, last: &Last) -> Result<(), String> {
    let status = step["status"]
        .as_u64()
        .unwrap_or_else(|| last.status.into());
    if u64::from(got.status.as_u16()) != status {
        return Err(format!(
            "{} instead of {status}: {:?}",
            got.status, got.headers
        ));
    }
    let bodiless = step["request"][":method"] == "HEAD" || [204, 304].contains(&status);
    let body = step["body"]
        .as_str()
        .unwrap_or(if bodiless { "" } else { &last.body });
    if body != "*" && got.body.as_deref() != Ok(body) {
        return Err(format!("body {:?} instead of {body:?}", got.body));
    }
    Ok(())
}

fn judge_fields(wanted: &Value, headers: &HeaderMap, now: i64) -> Result<(), String> {
    for (name, value) in wanted.as_object().unwrap() {
        let found: Vec<_> = headers
            .get_all(name)
            .iter()
            .map(|line| line.to_str().unwrap().to_owned())
            .collect();
        let wanted = if value.is_null() {
            Vec::new()
        } else {
            lines(value, now)
        };
        if found != wanted {
            return Err(format!("{name}: {found:?} instead of {wanted:?}"));
        }
    }
    Ok(())
}

fn pairs(fields: &Map<String, Value>, now: i64) -> Pairs {
    let own = fields.iter().filter(|(name, _)| !name.starts_with(':'));
    own.flat_map(|(name, value)| {
        lines(value, now)
            .into_iter()
            .map(|line| (name.clone(), line))
    })
    .collect()
}

fn lines(value: &Value, now: i64) -> Vec<String> {
    match value {
        Value::Array(lines) => lines
            .iter()
            .map(|line| dated(line.as_str().unwrap(), now))
            .collect(),
        line => vec![dated(line.as_str().unwrap(), now)],
    }
}

/// Replaces `{-60}` with the date a minute ago.
fn dated(text: &str, now: i64) -> String {
    let Some((before, rest)) = text.split_once('{') else {
        return text.to_owned();
    };
    let (offset, after) = rest.split_once('}').unwrap();
    let offset: i64 = offset.parse().unwrap();
    format!(
        "{before}{}{}",
        HttpDate::from_unix(now + offset),
        dated(after, now)
    )
}
