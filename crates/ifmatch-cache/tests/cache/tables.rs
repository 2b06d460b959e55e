//! The tables in tests/data, with one decision about header fields per line.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ifmatch_cache::policy::Audience;
use ifmatch_cache::policy::age::initial_age;
use ifmatch_cache::policy::cache_control::{Flag, ResponseDirectives, Scope};
use ifmatch_cache::policy::cdn_cache_control::Governing;
use ifmatch_cache::policy::freshness::{Heuristic, lifetime};
use ifmatch_cache::policy::resource_rules::ResourceRules;
use ifmatch_cache::policy::storable::{Exchange, StorableRules};
use ifmatch_core::date::{HttpDate, Timestamp};

/// Arrival time of the responses.
const NOW: i64 = 1_750_000_000;

/// Returns the columns of each line, and the line.
fn rows<const N: usize>(
    table: &'static str,
) -> impl Iterator<Item = ([&'static str; N], &'static str)> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        (
            columns
                .try_into()
                .unwrap_or_else(|_| panic!("not {N} columns: {line}")),
            line,
        )
    })
}

/// Fails with the rows that don't hold.
#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn directives_are_read_as_cache_control_txt_says() {
    let mut wrong = Vec::new();
    for ([lines, expected], line) in rows(include_str!("../data/cache_control.txt")) {
        let mut headers = HeaderMap::new();
        for value in lines.split(" & ") {
            headers.append("cache-control", HeaderValue::from_str(value).unwrap());
        }
        let found = understood(&ResponseDirectives::from_headers(&headers));
        if found != expected {
            wrong.push(format!("{line}: {found}"));
        }
    }
    none(&wrong);
}

fn understood(told: &ResponseDirectives) -> String {
    let seconds = [
        ("max-age", told.max_age),
        ("s-maxage", told.s_maxage),
        ("swr", told.stale_while_revalidate),
        ("sie", told.stale_if_error),
    ];
    let seconds = seconds
        .into_iter()
        .filter_map(|(name, time)| Some(format!("{name}={}", time?.as_secs())));
    let scopes = [("no-cache", &told.no_cache), ("private", &told.private)];
    let scopes = scopes.into_iter().filter_map(|(name, scope)| match scope {
        Scope::Nothing => None,
        Scope::Response => Some(name.to_owned()),
        Scope::Fields(fields) => Some(format!(
            "{name}({})",
            fields
                .iter()
                .map(HeaderName::as_str)
                .collect::<Vec<_>>()
                .join(",")
        )),
    });
    let flags = [
        ("no-store", Flag::NoStore),
        ("must-revalidate", Flag::MustRevalidate),
        ("proxy-revalidate", Flag::ProxyRevalidate),
        ("public", Flag::Public),
        ("must-understand", Flag::MustUnderstand),
        ("immutable", Flag::Immutable),
    ];
    let flags = flags
        .into_iter()
        .filter(|(_, flag)| told.has(*flag))
        .map(|(name, _)| name.to_owned());
    seconds
        .chain(scopes)
        .chain(flags)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn ages_are_computed_as_age_txt_says() {
    let mut wrong = Vec::new();
    for ([ages, date, took, expected], line) in rows(include_str!("../data/age.txt")) {
        let mut headers = HeaderMap::new();
        for age in ages.split(" & ").filter(|age| *age != "-") {
            headers.append("age", age.parse().unwrap());
        }
        let date = match date {
            "-" => None,
            "bad" => Some(HeaderValue::from_static("yesterday")),
            offset => Some(HttpDate::from_unix(NOW + offset.parse::<i64>().unwrap()).to_header()),
        };
        headers.extend(date.map(|date| (http::header::DATE, date)));
        let came = moment(0);
        let asked = moment(-took.parse::<i64>().unwrap());
        let found = initial_age(&headers, asked, came).as_secs();
        if found.to_string() != expected {
            wrong.push(format!("{line}: {found}"));
        }
    }
    none(&wrong);
}

#[test]
fn lifetimes_are_those_of_freshness_txt() {
    let mut wrong = Vec::new();
    for ([status, response, expected], line) in rows(include_str!("../data/freshness.txt")) {
        let response = fields(response);
        let governing = Governing::of(&response, Audience::Shared);
        let heuristic = Some(Heuristic::default());
        let found = lifetime(
            &HeaderMap::new(),
            code(status),
            &response,
            &governing,
            moment(0),
            Duration::ZERO,
            heuristic,
            &ResourceRules::default(),
        );
        if found != Duration::from_secs(expected.parse().unwrap()) {
            wrong.push(format!("{line}: {found:?}"));
        }
    }
    none(&wrong);
}

#[test]
fn responses_are_stored_as_storable_txt_says() {
    let mut wrong = Vec::new();
    for ([method, request, status, response, expected], line) in
        rows(include_str!("../data/storable.txt"))
    {
        let (request, response) = (fields(request), fields(response));
        let governing = Governing::of(&response, Audience::Shared);
        let method: Method = method.parse().unwrap();
        let exchange = Exchange {
            method: &method,
            request: &request,
            status: code(status),
            response: &response,
            governing: &governing,
            rules: StorableRules::default(),
            resource: &ResourceRules::default(),
        };
        let found = exchange
            .refusal()
            .map_or("yes".to_owned(), |refusal| format!("{refusal:?}"));
        if found != expected {
            wrong.push(format!("{line}: {found}"));
        }
    }
    none(&wrong);
}

fn moment(offset: i64) -> Timestamp {
    Timestamp::from_micros((NOW + offset).unsigned_abs() * 1_000_000)
}

fn code(status: &str) -> StatusCode {
    status.parse().unwrap()
}

/// Parses `name: value & name: value`. `{-60}` is replaced by the date a minute ago.
fn fields(text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for field in text.split(" & ").filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once(':').unwrap();
        let value = match value
            .trim()
            .strip_prefix('{')
            .and_then(|value| value.strip_suffix('}'))
        {
            Some(offset) => HttpDate::from_unix(NOW + offset.parse::<i64>().unwrap()).to_header(),
            None => HeaderValue::from_str(value.trim()).unwrap(),
        };
        headers.append(HeaderName::try_from(name).unwrap(), value);
    }
    headers
}
