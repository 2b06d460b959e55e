//! The cases with the cache as a service and a manual clock.

use std::collections::HashSet;
use std::path::Path;

use http::{HeaderMap, StatusCode};

use crate::case::{self, Case, Got, Last, Telling};
use crate::support::{Answer, World, request, response};

#[tokio::test]
async fn every_case_holds() {
    let cases = cases();
    let mut failures = Vec::new();
    for case in &cases {
        if let Err(why) = run(case).await {
            failures.push(format!("{}: {why}", case.name));
        }
    }
    case::report(cases.len(), &failures);
}

#[test]
fn every_case_has_its_own_name() {
    let mut names = HashSet::new();
    for Case { name, .. } in cases() {
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
}

fn cases() -> Vec<Case> {
    case::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases"))
}

async fn run(case: &Case) -> Result<(), String> {
    let (world, mut last) = (World::default(), Last::default());
    for (at, step) in case.steps.iter().enumerate() {
        world.pass(case::wait(step));
        let now = world.unix();
        script(&world, case::telling(step, &mut last, now));
        let got = ask(&world, &case::asking(step, now)).await;
        case::judge(step, &got, &last, now).map_err(|why| format!("step {}: {why}", at + 1))?;
    }
    Ok(())
}

fn script(world: &World, telling: Option<Telling>) {
    match telling {
        None => {}
        Some(Telling::Fails) => world.origin.will_fail(),
        Some(Telling::Answers {
            status,
            fields,
            body,
        }) => {
            world
                .origin
                .will_answer(response(status, &texts(&fields), &body));
        }
    }
}

/// Sends a request. A failure of the inner service becomes a 502, as in a server.
async fn ask(world: &World, asking: &case::Asking) -> Got {
    let before = world.origin.count();
    let sent = world
        .try_send(request(
            &asking.method,
            &asking.path,
            &texts(&asking.fields),
        ))
        .await;
    let (status, headers, body) = match sent {
        Ok(response) => {
            let answer = Answer::read(response).await;
            (answer.status, answer.headers, answer.body)
        }
        Err(_) => (StatusCode::BAD_GATEWAY, HeaderMap::new(), Ok(String::new())),
    };
    let seen = world.origin.seen().last().map(|seen| seen.headers.clone());
    Got {
        status,
        headers,
        body,
        times: world.origin.count() - before,
        seen,
    }
}

fn texts(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}
