//! Properties: agreement with the naive evaluator, round trips, and dates that lose no update.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_core::precondition::{Preconditions, Validators, Verdict, evaluate};
use ifmatch_core::range::{ByteRange, Limits, Representation, Selection, if_range};
use ifmatch_core::record::Revision;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::naive;
use super::precondition_tables::name;
use crate::table;
use crate::table::Current;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agrees_with_the_naive_evaluator(method in method(), lines in vec(line(), 0..5), current in current()) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        let validators =
            current.as_ref().map(|current| Validators { tags: &current.tags, last_modified: current.last_modified });
        let verdict = Preconditions::from_headers(&headers).evaluate(&method, validators.as_ref());
        prop_assert_eq!(name(verdict), naive::evaluate(&method, &headers, current.as_ref()));
        prop_assert_eq!(evaluate(&headers, &method, validators.as_ref()), verdict);
    }

    #[test]
    fn a_sent_date_identifies_one_state(events in vec(event(), 1..30)) {
        check_dates(&events)?;
    }

    #[test]
    fn a_date_survives_a_round_trip(seconds in HttpDate::MIN.unix()..=HttpDate::MAX.unix()) {
        let date = HttpDate::from_unix(seconds);
        prop_assert_eq!(HttpDate::parse(date.to_string().as_bytes()), Some(date));
    }

    #[test]
    fn pieces_hash_like_the_whole(bytes in vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len() + 1);
        let mut hasher = Hasher::default();
        hasher.update(&bytes[..cut]);
        hasher.update(&bytes[cut..]);
        prop_assert_eq!(hasher.finish(), ContentHash::of(&bytes));
    }

    #[test]
    fn a_range_selects_the_bytes_that_it_names(len in 1_u64..30, first in 0_u64..40, last in 0_u64..40) {
        let value = format!("bytes={first}-{last}");
        let wanted: Vec<u64> = (0..len).filter(|at| (first..=last).contains(at)).collect();
        let expected = match (wanted.first(), wanted.last()) {
            _ if first > last => Selection::Whole,
            (Some(start), Some(end)) => Selection::Parts(vec![ByteRange::new(*start, *end).unwrap()]),
            _ => Selection::Unsatisfiable,
        };
        prop_assert_eq!(Selection::parse(value.as_bytes(), len, Limits::default()), expected);
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A write after a number of microseconds.
    Write(u64),
    /// A read after a number of microseconds. A client gets the date if it is sent.
    Read(u64),
}

/// Small steps, and steps that end on a whole second.
fn event() -> impl Strategy<Value = Event> {
    let step = prop_oneof![
        Just(0),
        1..3_u64,
        1..2_000_000_u64,
        Just(500_000),
        Just(1_000_000)
    ];
    (step, any::<bool>()).prop_map(|(step, write)| {
        if write {
            Event::Write(step)
        } else {
            Event::Read(step)
        }
    })
}

/// Every client with a date uses it after every write. It may succeed only while the state is the one the client has seen.
fn check_dates(events: &[Event]) -> Result<(), TestCaseError> {
    let mut now = Timestamp::from_micros(1_000_000);
    let mut state = Revision::NONE.next(now);
    let mut clients: Vec<(HttpDate, Revision)> = Vec::new();
    for event in events {
        let (Event::Write(step) | Event::Read(step)) = *event;
        now = Timestamp::from_micros(now.micros() + step);
        let before = state.timestamp().last_modified();
        match event {
            Event::Write(_) => state = state.next(now),
            Event::Read(_) if before.has_come(now) => clients.push((before, state)),
            Event::Read(_) => {}
        }
        let current = state.timestamp().last_modified();
        prop_assert!(before <= current, "the date went back");
        for (date, seen) in &clients {
            prop_assert_eq!(
                *date >= current,
                *seen == state,
                "{} names a later state",
                date
            );
            prop_assert_eq!(put(*date, current) == Verdict::Proceed, *seen == state);
            prop_assert_eq!(get(*date, current) == Verdict::NotModified, *seen == state);
            prop_assert!(!resumes(*date, current, now) || *seen == state);
        }
    }
    Ok(())
}

fn put(date: HttpDate, last_modified: HttpDate) -> Verdict {
    let conditions = Preconditions {
        if_unmodified_since: Some(date),
        ..Preconditions::default()
    };
    conditions.evaluate(
        &Method::PUT,
        Some(&Validators {
            tags: &[],
            last_modified: Some(last_modified),
        }),
    )
}

fn get(date: HttpDate, last_modified: HttpDate) -> Verdict {
    let conditions = Preconditions {
        if_modified_since: Some(date),
        ..Preconditions::default()
    };
    conditions.evaluate(
        &Method::GET,
        Some(&Validators {
            tags: &[],
            last_modified: Some(last_modified),
        }),
    )
}

fn resumes(date: HttpDate, last_modified: HttpDate, now: Timestamp) -> bool {
    let headers = HeaderMap::from_iter([(header::IF_RANGE, date.to_header())]);
    let sent = Representation {
        tag: None,
        last_modified: Some(last_modified),
        len: 1,
    };
    if_range(&headers, &sent, now) == Some(true)
}

fn method() -> impl Strategy<Value = Method> {
    const NAMES: &[&str] = &[
        "GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "QUERY", "OPTIONS", "TRACE", "CONNECT",
        "LOCK",
    ];
    select(NAMES).prop_map(|name| name.parse().unwrap())
}

fn line() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let tags = (
        select(vec![header::IF_MATCH, header::IF_NONE_MATCH]),
        tag_line(),
    );
    let dates = (
        select(vec![header::IF_UNMODIFIED_SINCE, header::IF_MODIFIED_SINCE]),
        date_line(),
    );
    prop_oneof![tags, dates]
}

/// Fragments that often form valid lists, and often invalid ones.
fn tag_line() -> impl Strategy<Value = HeaderValue> {
    let good = select(
        &[
            "\"a\"",
            "\"b\"",
            "W/\"a\"",
            "\"a,b\"",
            "\"\\xe9\"",
            "\"\"",
            "*",
            "",
        ][..],
    );
    let list = vec(good, 1..4).prop_map(|members| members.join(", "));
    let bits = select(
        &[
            "\"", "a", "b", ",", " ", "\t", "W/", "*", "\\xe9", "\"a\"", "\"b\"", "w/", "\\x5c",
        ][..],
    );
    let soup = vec(bits, 0..10).prop_map(|bits| bits.concat());
    prop_oneof![list, soup].prop_map(|text| HeaderValue::from_bytes(&table::bytes(&text)).unwrap())
}

fn date_line() -> impl Strategy<Value = HeaderValue> {
    let date = seconds().prop_map(|seconds| HttpDate::from_unix(seconds).to_header());
    prop_oneof![4 => date, 1 => Just(HeaderValue::from_static("yesterday"))]
}

fn seconds() -> impl Strategy<Value = i64> {
    select(vec![-1_i64, 0, 1, 99, 100, 101])
}

fn current() -> impl Strategy<Value = Option<Current>> {
    let tags = select(&["\"a\"", "\"b\"", "W/\"a\"", "\"a,b\"", "\"\\xe9\"", "\"\""][..])
        .prop_map(|text| EntityTag::parse(&table::bytes(text)).unwrap());
    let last_modified = prop::option::of(seconds().prop_map(HttpDate::from_unix));
    prop::option::weighted(0.8, (vec(tags, 0..3), last_modified)).prop_map(|current| {
        current.map(|(tags, last_modified)| Current {
            tags,
            last_modified,
        })
    })
}
