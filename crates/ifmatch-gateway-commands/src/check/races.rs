//! Races: many requests on one condition, of which one may succeed.

use futures_util::future::join_all;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{Method, StatusCode};
use ifmatch_gateway_config::error::Error;

use super::judge::{Finding, Risk, Verdict};
use super::site::{Seen, Site};

/// Number of races of each kind.
pub(super) const ROUNDS: usize = 10;
/// Number of requests in a race.
pub(super) const WRITERS: usize = 16;

/// A kind of race.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// PUT with `If-None-Match: *`.
    Create,
    /// PUT with `If-Match` and one tag.
    Replace,
    /// PUT and DELETE, in turn, with `If-Match` and one tag.
    Delete,
}

/// The outcome of a race.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This many requests succeeded, and the content is the last one's.
    Won(usize),
    /// The content is of none that succeeded. `true` if a request without a clear outcome explains it.
    Foreign(bool),
}

/// Runs all races.
///
/// # Errors
/// If the server doesn't respond, or can't store anything.
pub(super) async fn check(site: &Site<'_>) -> Result<Vec<Finding>, Error> {
    let kinds = [
        (Kind::Create, "13.1.2", "one of 16 concurrent creates succeeds"),
        (Kind::Replace, "13.1.1", "one of 16 concurrent replacements succeeds"),
        (Kind::Delete, "13.1.1", "one of 16 concurrent replacements and deletions succeeds"),
    ];
    let mut findings = Vec::new();
    for (kind, section, name) in kinds {
        let (verdict, detail) = races(site, kind).await?;
        findings.push(Finding { section, name: name.to_owned(), risk: Some(Risk::Lost), verdict, detail });
    }
    Ok(findings)
}

async fn races(site: &Site<'_>, kind: Kind) -> Result<(Verdict, String), Error> {
    let keys: Vec<String> = (0..ROUNDS).map(|_| site.key()).collect();
    if kind != Kind::Create {
        for key in &keys {
            site.write(key, &content(WRITERS)).await?;
        }
    }
    let mut outcomes = Vec::new();
    for key in keys {
        let condition = if kind == Kind::Create {
            (IF_NONE_MATCH, "*".to_owned())
        } else {
            match site.settled(&key, false).await?.tag {
                Some(tag) => (IF_MATCH, tag),
                None => return Ok((Verdict::No, "no strong tag, so no race is possible".to_owned())),
            }
        };
        outcomes.push(race(site, kind, &key, &condition).await?);
    }
    Ok(judged(&outcomes))
}

/// Judges the races of a kind by the worst one.
pub(super) fn judged(outcomes: &[Outcome]) -> (Verdict, String) {
    let (mut verdict, mut winners) = (Verdict::Yes, Vec::new());
    for outcome in outcomes {
        let (round, shown) = match outcome {
            Outcome::Won(1) => (Verdict::Yes, "1".to_owned()),
            Outcome::Won(0) => (Verdict::Differs, "0".to_owned()),
            Outcome::Won(count) => (Verdict::No, count.to_string()),
            Outcome::Foreign(true) => (Verdict::Differs, "?".to_owned()),
            Outcome::Foreign(false) => (Verdict::No, "?".to_owned()),
        };
        winners.push(shown);
        if verdict != Verdict::No && round != Verdict::Yes {
            verdict = round;
        }
    }
    (verdict, format!("winners of {} races: {}", outcomes.len(), winners.join(" ")))
}

async fn race(
    site: &Site<'_>,
    kind: Kind,
    key: &str,
    condition: &(http::HeaderName, String),
) -> Result<Outcome, Error> {
    let condition = std::slice::from_ref(condition);
    let send = |number: usize| async move {
        let (method, body) = match effect(kind, number) {
            Some(body) => (Method::PUT, body),
            None => (Method::DELETE, String::new()),
        };
        // Without a response, the outcome is as unclear as after a server error.
        let sent = site.send_once(&method, key, condition, &body).await;
        sent.map_or(StatusCode::BAD_GATEWAY, |response| response.status())
    };
    let statuses = join_all((0..WRITERS).map(send)).await;
    let after = site.get(key).await?;
    Ok(outcome(kind, &after, &statuses))
}

/// Returns the outcome of a race, by the content after it and the statuses of its requests.
pub(super) fn outcome(kind: Kind, after: &Seen, statuses: &[StatusCode]) -> Outcome {
    let numbers = |wanted: fn(&StatusCode) -> bool| {
        let all = statuses.iter().enumerate();
        all.filter(move |(_, status)| wanted(status)).map(|(number, _)| number)
    };
    let is_now = |number: &usize| match effect(kind, *number) {
        Some(body) => after.exists() && after.body == body,
        None => !after.exists(),
    };
    let won: Vec<usize> = numbers(StatusCode::is_success).collect();
    let untouched = if kind == Kind::Create { !after.exists() } else { after.body == content(WRITERS) };
    if won.iter().any(is_now) || (won.is_empty() && untouched) {
        return Outcome::Won(won.len());
    }
    Outcome::Foreign(numbers(StatusCode::is_server_error).any(|number| is_now(&number)))
}

/// Returns the content that a request leaves, or `None` for a deletion.
fn effect(kind: Kind, number: usize) -> Option<String> {
    (kind != Kind::Delete || number.is_multiple_of(2)).then(|| content(number))
}

pub(super) fn content(number: usize) -> String {
    format!("writer {number:02}")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Response;

    use super::*;

    fn seen(status: u16, body: &'static str) -> Seen {
        Seen::of(Response::builder().status(status).body(Bytes::from(body)).unwrap())
    }

    /// Judges a race of three requests.
    fn of(kind: Kind, after: &Seen, statuses: [u16; 3]) -> Outcome {
        let statuses = statuses.map(|status| StatusCode::from_u16(status).unwrap());
        outcome(kind, after, &statuses)
    }

    #[test]
    fn a_race_has_one_winner_whose_content_is_there() {
        let second = seen(200, "writer 01");
        assert_eq!(of(Kind::Replace, &second, [412, 200, 412]), Outcome::Won(1));
        assert_eq!(of(Kind::Replace, &second, [200, 200, 412]), Outcome::Won(2));
        assert_eq!(of(Kind::Replace, &second, [200, 412, 412]), Outcome::Foreign(false));
        assert_eq!(of(Kind::Replace, &second, [200, 500, 412]), Outcome::Foreign(true));
        assert_eq!(of(Kind::Replace, &second, [412, 412, 412]), Outcome::Foreign(false));
        assert_eq!(of(Kind::Replace, &seen(200, "writer 16"), [412, 503, 412]), Outcome::Won(0));
        assert_eq!(of(Kind::Create, &seen(404, ""), [409, 409, 409]), Outcome::Won(0));
        assert_eq!(of(Kind::Delete, &seen(404, ""), [412, 204, 412]), Outcome::Won(1));
        assert_eq!(of(Kind::Delete, &seen(200, "writer 00"), [412, 204, 412]), Outcome::Foreign(false));
    }
}
