//! The cases in tests/data/cases: what the origin answers, what clients ask, and what they must get.
//!
//! A file is a list of cases. A case has an `id`, the `rfc` that it is from, and `steps`; `"required": false` marks what the
//! RFC leaves to the cache. A step has:
//!
//! | member | meaning |
//! |---|---|
//! | `wait` | seconds that pass before it |
//! | `request` | header fields; `:method`, `:path` |
//! | `origin` | what the origin answers if it is asked: header fields; `:status`, `:body`; `"fails"`; absent: it must not be asked |
//! | `from` | `origin`; `cache`: without asking it; `validated`: from the cache, after a 304 |
//! | `status`, `body` | of the answer; by default those of the response that it is from |
//! | `fields` | header fields of the answer; null: absent |
//! | `sent` | header fields that the origin must have seen; null: absent |
//!
//! A value is a text, or a list of field lines. `{+60}` in it is the date a minute from now.

use serde_json::{Map, Value};

use crate::support::{Answer, TestBody, TestClock, World, request, response};

const FILES: [(&str, &str); 12] = [
    ("control", include_str!("../data/cases/control.json")),
    ("freshness", include_str!("../data/cases/freshness.json")),
    ("age", include_str!("../data/cases/age.json")),
    ("requests", include_str!("../data/cases/requests.json")),
    ("storing", include_str!("../data/cases/storing.json")),
    ("stale", include_str!("../data/cases/stale.json")),
    ("validation", include_str!("../data/cases/validation.json")),
    ("conditions", include_str!("../data/cases/conditions.json")),
    ("vary", include_str!("../data/cases/vary.json")),
    ("invalidation", include_str!("../data/cases/invalidation.json")),
    ("ranges", include_str!("../data/cases/ranges.json")),
    ("targeted", include_str!("../data/cases/targeted.json")),
];

#[tokio::test]
async fn every_case_holds() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for (file, text) in FILES {
        let cases: Vec<Value> = serde_json::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        for case in &cases {
            count += 1;
            if let Err(why) = run(case).await {
                failures.push(format!("{file}/{} ({}): {why}", case["id"].as_str().unwrap(), case["rfc"]));
            }
        }
    }
    assert!(count >= 150, "only {count} cases");
    assert!(failures.is_empty(), "{} of {count} cases fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_has_its_own_name() {
    for (file, text) in FILES {
        let cases = serde_json::from_str::<Vec<Value>>(text).unwrap();
        let mut ids: Vec<_> = cases.iter().map(|case| case["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        let repeated: Vec<_> = ids.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(repeated.is_empty(), "{file}: {repeated:?}");
    }
}

async fn run(case: &Value) -> Result<(), String> {
    let world = World::default();
    let mut last = Origin::default();
    for (at, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        check_members(step);
        world.clock.advance(step["wait"].as_u64().unwrap_or_default());
        take(&world, step, &mut last).await.map_err(|why| format!("step {}: {why}", at + 1))?;
    }
    Ok(())
}

/// What the origin has answered last.
#[derive(Default)]
struct Origin {
    status: u16,
    body: String,
}

async fn take(world: &World, step: &Value, last: &mut Origin) -> Result<(), String> {
    let before = world.origin.count();
    script(world, &step["origin"], last);
    let answer = match world.try_send(asked(step, &world.clock)).await {
        Ok(response) => Answer::read(response).await,
        Err(_) if step["from"] == "failure" => return Ok(()),
        Err(_) => return Err("the origin's failure was passed on".to_owned()),
    };
    let times = world.origin.count() - before;
    let from = step["from"].as_str().unwrap();
    let validated = world.origin.seen().last().is_some_and(|seen| {
        seen.headers.contains_key("if-none-match") || seen.headers.contains_key("if-modified-since")
    });
    let passed = answer.cache_status().contains("fwd=");
    let right = match from {
        "cache" => times == 0,
        "validated" => times == 1 && validated && answer.cache_status().contains("fwd-status=304"),
        "origin" => times == 1 && passed && !answer.cache_status().contains("fwd-status"),
        "any" => true,
        other => panic!("from: {other}"),
    };
    if !right {
        return Err(format!("not from {from}: the origin was asked {times} times; {:?}", answer.headers));
    }
    check_answer(step, &answer, last, &world.clock)?;
    match step.get("sent") {
        Some(sent) => check_fields(sent, &world.origin.seen().last().ok_or("nothing was sent")?.headers, &world.clock),
        None => Ok(()),
    }
}

fn check_answer(step: &Value, answer: &Answer, last: &Origin, clock: &TestClock) -> Result<(), String> {
    let status = step["status"].as_u64().unwrap_or_else(|| last.status.into());
    if u64::from(answer.status.as_u16()) != status {
        return Err(format!("{} instead of {status}: {:?}", answer.status, answer.headers));
    }
    let bodiless = step["request"][":method"] == "HEAD" || [204, 304].contains(&status);
    let body = step["body"].as_str().unwrap_or(if bodiless { "" } else { &last.body });
    if body != "*" && answer.body.as_deref() != Ok(body) {
        return Err(format!("body {:?} instead of {body:?}", answer.body));
    }
    step.get("fields").map_or(Ok(()), |fields| check_fields(fields, &answer.headers, clock))
}

fn check_fields(wanted: &Value, headers: &http::HeaderMap, clock: &TestClock) -> Result<(), String> {
    for (name, value) in wanted.as_object().unwrap() {
        let found: Vec<_> = headers.get_all(name).iter().map(|line| line.to_str().unwrap().to_owned()).collect();
        let wanted = if value.is_null() { Vec::new() } else { lines(value, clock) };
        if found != wanted {
            return Err(format!("{name}: {found:?} instead of {wanted:?}"));
        }
    }
    Ok(())
}

/// Tells the origin what to answer. A 304 leaves the last response what it was.
fn script(world: &World, origin: &Value, last: &mut Origin) {
    match origin {
        Value::Null => {}
        Value::String(fails) if fails == "fails" => world.origin.will_fail(),
        Value::Object(fields) => {
            let status = fields.get(":status").map_or(200, |status| status.as_u64().unwrap());
            let status = u16::try_from(status).unwrap();
            let default = if status == 304 { "" } else { "hello" };
            let body = fields.get(":body").map_or(default, |body| body.as_str().unwrap());
            if status != 304 {
                *last = Origin { status, body: body.to_owned() };
            }
            let fields = pairs(fields, &world.clock);
            let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            world.origin.will_answer(response(status, &fields, body));
        }
        other => panic!("origin: {other}"),
    }
}

fn asked(step: &Value, clock: &TestClock) -> http::Request<TestBody> {
    let none = Map::new();
    let fields = step["request"].as_object().unwrap_or(&none);
    let text = |name: &str, default: &str| fields.get(name).map_or(default, |text| text.as_str().unwrap()).to_owned();
    let pairs = pairs(fields, clock);
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    request(&text(":method", "GET"), &text(":path", "/"), &pairs)
}

fn pairs(fields: &Map<String, Value>, clock: &TestClock) -> Vec<(String, String)> {
    let own = fields.iter().filter(|(name, _)| !name.starts_with(':'));
    own.flat_map(|(name, value)| lines(value, clock).into_iter().map(|line| (name.clone(), line))).collect()
}

fn lines(value: &Value, clock: &TestClock) -> Vec<String> {
    match value {
        Value::Array(lines) => lines.iter().map(|line| dated(line.as_str().unwrap(), clock)).collect(),
        line => vec![dated(line.as_str().unwrap(), clock)],
    }
}

/// Replaces `{-60}` by the date a minute ago.
fn dated(text: &str, clock: &TestClock) -> String {
    let Some((before, rest)) = text.split_once('{') else { return text.to_owned() };
    let (offset, after) = rest.split_once('}').unwrap();
    format!("{before}{}{}", clock.date(offset.parse().unwrap()), dated(after, clock))
}

fn check_members(step: &Value) {
    let known = ["wait", "request", "origin", "from", "status", "body", "fields", "sent"];
    for name in step.as_object().unwrap().keys() {
        assert!(known.contains(&name.as_str()), "no such member of a step: {name}");
    }
}
