//! Races: many requests on one condition, of which one may succeed.

use futures_util::future::join_all;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, Method, StatusCode};
use ifmatch_gateway_config::error::Error;

use super::judge::{CheckFinding, CheckVerdict, ClientRisk};
use super::site::{CheckSite, SeenResource};

/// Number of races of each kind.
pub(super) const ROUNDS: usize = 10;
/// Number of requests in a race, which the names of the checks state.
pub(super) const WRITERS: usize = 16;

/// A kind of race.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RaceKind {
    /// PUT with `If-None-Match: *`.
    Create,
    /// PUT with `If-Match` and one tag.
    Replace,
    /// PUT and DELETE, in turn, with `If-Match` and one tag.
    Delete,
}

impl RaceKind {
    /// Returns the section of RFC 9110 and the name of the check.
    pub(super) fn check(self) -> (&'static str, &'static str) {
        match self {
            Self::Create => ("13.1.2", "one of 16 concurrent creates succeeds"),
            Self::Replace => ("13.1.1", "one of 16 concurrent replacements succeeds"),
            Self::Delete => (
                "13.1.1",
                "one of 16 concurrent replacements and deletions succeeds",
            ),
        }
    }
}

/// The outcome of a race.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RaceOutcome {
    /// This many requests succeeded, and the content is the last one's.
    Won(usize),
    /// The content is of none that succeeded. `true` if a request without a clear outcome explains it.
    Foreign(bool),
}

/// Runs all races.
///
/// # Errors
/// Fails if the server doesn't respond, or can't store anything.
pub(super) async fn check(site: &CheckSite<'_>) -> Result<Vec<CheckFinding>, Error> {
    let mut findings = Vec::new();
    for kind in [RaceKind::Create, RaceKind::Replace, RaceKind::Delete] {
        let (verdict, detail) = races(site, kind).await?;
        let (section, name) = kind.check();
        let risk = ClientRisk::Lost;
        findings.push(CheckFinding::new(section, name, risk, verdict, detail));
    }
    Ok(findings)
}

/// Runs and judges the races of a kind.
async fn races(site: &CheckSite<'_>, kind: RaceKind) -> Result<(CheckVerdict, String), Error> {
    let keys: Vec<String> = (0..ROUNDS).map(|_| site.key()).collect();
    if kind != RaceKind::Create {
        for key in &keys {
            site.write(key, &content(WRITERS)).await?;
        }
    }
    let mut outcomes = Vec::new();
    for key in keys {
        let condition = if kind == RaceKind::Create {
            (IF_NONE_MATCH, "*".to_owned())
        } else {
            match site.settled(&key, false).await?.tag {
                Some(tag) => (IF_MATCH, tag),
                None => {
                    return Ok((
                        CheckVerdict::No,
                        "no strong tag, so no race is possible".to_owned(),
                    ));
                }
            }
        };
        outcomes.push(race(site, kind, &key, &condition).await?);
    }
    Ok(judged(&outcomes))
}

/// Judges the races of a kind by the worst one.
pub(super) fn judged(outcomes: &[RaceOutcome]) -> (CheckVerdict, String) {
    let (mut verdict, mut winners) = (CheckVerdict::Yes, Vec::new());
    for outcome in outcomes {
        let (round, shown) = match outcome {
            RaceOutcome::Won(1) => (CheckVerdict::Yes, "1".to_owned()),
            RaceOutcome::Won(0) => (CheckVerdict::Differs, "0".to_owned()),
            RaceOutcome::Won(count) => (CheckVerdict::No, count.to_string()),
            RaceOutcome::Foreign(true) => (CheckVerdict::Differs, "?".to_owned()),
            RaceOutcome::Foreign(false) => (CheckVerdict::No, "?".to_owned()),
        };
        winners.push(shown);
        if verdict != CheckVerdict::No && round != CheckVerdict::Yes {
            verdict = round;
        }
    }
    (
        verdict,
        format!("winners of {} races: {}", outcomes.len(), winners.join(" ")),
    )
}

/// Runs a race for the resource `key`.
async fn race(
    site: &CheckSite<'_>,
    kind: RaceKind,
    key: &str,
    condition: &(HeaderName, String),
) -> Result<RaceOutcome, Error> {
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
pub(super) fn outcome(
    kind: RaceKind,
    after: &SeenResource,
    statuses: &[StatusCode],
) -> RaceOutcome {
    let numbers = |wanted: fn(&StatusCode) -> bool| {
        let all = statuses.iter().enumerate();
        all.filter(move |(_, status)| wanted(status))
            .map(|(number, _)| number)
    };
    let is_now = |number: &usize| match effect(kind, *number) {
        Some(body) => after.exists() && after.body == body,
        None => !after.exists(),
    };
    let won: Vec<usize> = numbers(StatusCode::is_success).collect();
    let untouched = if kind == RaceKind::Create {
        !after.exists()
    } else {
        after.body == content(WRITERS)
    };
    if won.iter().any(is_now) || (won.is_empty() && untouched) {
        return RaceOutcome::Won(won.len());
    }
    RaceOutcome::Foreign(numbers(StatusCode::is_server_error).any(|number| is_now(&number)))
}

/// Returns the content that a request leaves, or `None` for a deletion.
fn effect(kind: RaceKind, number: usize) -> Option<String> {
    (kind != RaceKind::Delete || number.is_multiple_of(2)).then(|| content(number))
}

/// Returns the content that a request writes. They all have the same length.
pub(super) fn content(number: usize) -> String {
    format!("writer {number:02}")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Response;

    use super::*;

    fn seen(status: u16, body: &'static str) -> SeenResource {
        SeenResource::of(
            Response::builder()
                .status(status)
                .body(Bytes::from(body))
                .unwrap(),
        )
    }

    /// Returns the outcome of a race of three requests.
    fn of(kind: RaceKind, after: &SeenResource, statuses: [u16; 3]) -> RaceOutcome {
        let statuses = statuses.map(|status| StatusCode::from_u16(status).unwrap());
        outcome(kind, after, &statuses)
    }

    #[test]
    fn a_race_has_one_winner_whose_content_is_there() {
        let second = seen(200, "writer 01");
        assert_eq!(
            of(RaceKind::Replace, &second, [412, 200, 412]),
            RaceOutcome::Won(1)
        );
        assert_eq!(
            of(RaceKind::Replace, &second, [200, 200, 412]),
            RaceOutcome::Won(2)
        );
        assert_eq!(
            of(RaceKind::Replace, &second, [200, 412, 412]),
            RaceOutcome::Foreign(false)
        );
        assert_eq!(
            of(RaceKind::Replace, &second, [200, 500, 412]),
            RaceOutcome::Foreign(true)
        );
        assert_eq!(
            of(RaceKind::Replace, &second, [412, 412, 412]),
            RaceOutcome::Foreign(false)
        );
        assert_eq!(
            of(RaceKind::Replace, &seen(200, "writer 16"), [412, 503, 412]),
            RaceOutcome::Won(0)
        );
        assert_eq!(
            of(RaceKind::Create, &seen(404, ""), [409, 409, 409]),
            RaceOutcome::Won(0)
        );
        assert_eq!(
            of(RaceKind::Delete, &seen(404, ""), [412, 204, 412]),
            RaceOutcome::Won(1)
        );
        assert_eq!(
            of(RaceKind::Delete, &seen(200, "writer 00"), [412, 204, 412]),
            RaceOutcome::Foreign(false)
        );
    }
}
