//! Instruction counts of functions. They don't depend on the machine's load.
//!
//! `cargo xtask bench functions` runs this. It needs valgrind, and the runner of the library's version.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(missing_docs, reason = "the macros make public items")]

use std::hint::black_box;
use std::time::Duration;

use gungraun::prelude::*;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Authority, Begin, Command, Commit, Content, Outcome, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::{Preconditions, Validators};
use ifmatch_core::record::{Record, Variant};

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
const LATER: Timestamp = Timestamp::from_micros(1_800_000_000_000_100);

fn tag(number: usize) -> EntityTag {
    ContentHash::of(&number.to_be_bytes()).content_tag()
}

/// Returns the field line of a client with a number of versions, the current one last.
fn list(name: HeaderName, len: usize) -> HeaderMap {
    let tags: Vec<String> = (0..len)
        .rev()
        .map(|number| tag(number).to_string())
        .collect();
    HeaderMap::from_iter([(name, HeaderValue::try_from(tags.join(", ")).unwrap())])
}

fn conditions(name: HeaderName, len: usize) -> (Preconditions, EntityTag) {
    (Preconditions::from_headers(&list(name, len)), tag(0))
}

#[library_benchmark]
#[bench::one_tag(list(IF_NONE_MATCH, 1))]
#[bench::ten_tags(list(IF_NONE_MATCH, 10))]
#[bench::none(HeaderMap::new())]
fn parse(headers: HeaderMap) -> (HeaderMap, Preconditions) {
    let parsed = black_box(Preconditions::from_headers(black_box(&headers)));
    (headers, parsed)
}

#[library_benchmark]
#[bench::if_none_match_1(args = (IF_NONE_MATCH, 1), setup = conditions)]
#[bench::if_none_match_10(args = (IF_NONE_MATCH, 10), setup = conditions)]
#[bench::if_match_1(args = (IF_MATCH, 1), setup = conditions)]
#[bench::if_match_10(args = (IF_MATCH, 10), setup = conditions)]
fn evaluate((conditions, current): (Preconditions, EntityTag)) -> (Preconditions, EntityTag) {
    let validators = Validators {
        tags: std::slice::from_ref(&current),
        last_modified: None,
    };
    let _ = black_box(black_box(&conditions).evaluate(&Method::GET, Some(&validators)));
    (conditions, current)
}

/// Returns a record with a version that matches the conditions.
fn written() -> (Record, Preconditions) {
    let content = Content::Tagged {
        variant: Variant::only(),
        tag: tag(0),
    };
    let write = Write::new(&Method::PUT, &Preconditions::NONE, content, 1);
    let record = Record::absent()
        .apply(&Command::Write(write), NOW)
        .next
        .unwrap();
    (record, conditions(IF_MATCH, 1).0)
}

fn begin_command(preconditions: &Preconditions) -> Command<'_> {
    Command::Begin(
        Begin::new(&Method::PUT, preconditions, 2, Duration::from_secs(30))
            .with_authority(Authority::Register),
    )
}

fn begun() -> (Record, Commit) {
    let (record, preconditions) = written();
    let begun = record.apply(&begin_command(&preconditions), LATER);
    let Outcome::Granted(grant) = begun.outcome else {
        panic!("{:?}", begun.outcome)
    };
    let content = Content::Tagged {
        variant: Variant::only(),
        tag: tag(1),
    };
    (begun.next.unwrap(), Commit::new(grant.token, content))
}

#[library_benchmark]
#[bench::if_match(setup = written)]
fn apply_begin(
    (record, preconditions): (Record, Preconditions),
) -> (Record, Preconditions, Record) {
    let next = black_box(record.apply(&begin_command(&preconditions), LATER))
        .next
        .unwrap();
    (record, preconditions, next)
}

#[library_benchmark]
#[bench::tagged(setup = begun)]
fn apply_commit((record, commit): (Record, Commit)) -> (Record, Record) {
    let next = black_box(record.apply(&Command::Commit(commit), LATER))
        .next
        .unwrap();
    (record, next)
}

#[library_benchmark]
#[bench::hashed_if_match(setup = written)]
fn apply_write(
    (record, preconditions): (Record, Preconditions),
) -> (Record, Preconditions, Record) {
    let content = Content::Hashed {
        hash: ContentHash::from_bytes([7; 32]),
        payload: bytes::Bytes::new(),
    };
    let write = Write::new(&Method::PUT, &preconditions, content, 2);
    let next = black_box(record.apply(&Command::Write(write), LATER))
        .next
        .unwrap();
    (record, preconditions, next)
}

#[library_benchmark]
#[bench::written(setup = written)]
fn encode((record, _): (Record, Preconditions)) -> (Record, Vec<u8>) {
    let bytes = black_box(record.encode());
    (record, bytes)
}

fn encoded() -> Vec<u8> {
    written().0.encode()
}

#[library_benchmark]
#[bench::written(setup = encoded)]
fn decode(bytes: Vec<u8>) -> (Vec<u8>, Record) {
    let record = black_box(Record::decode(&bytes)).unwrap();
    (bytes, record)
}

library_benchmark_group!(
    name = decisions,
    benchmarks = [
        parse,
        evaluate,
        apply_begin,
        apply_commit,
        apply_write,
        encode,
        decode
    ]
);

main!(library_benchmark_groups = decisions);
