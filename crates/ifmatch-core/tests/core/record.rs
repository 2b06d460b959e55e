//! The write protocol, command by command.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use ifmatch_core::EntityTag;
use ifmatch_core::command::{
    Authority, Begin, Command, Commit, Content, Doubt, Grant, LeaseOperation, Observation,
    Observed, Outcome, Refusal, Write,
};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseUse};
use ifmatch_core::precondition::{Precondition, Preconditions};
use ifmatch_core::record::{DecodeErrorKind, Overlong, Record, RequestId, State, Variant, Version};

const TTL: Duration = Duration::from_secs(30);

/// Returns a time, in seconds from the start of the test.
fn at(seconds: f64) -> Timestamp {
    let start = Timestamp::from_micros(1_700_000_000_000_000);
    start.saturating_add(Duration::from_secs_f64(seconds))
}

fn condition(name: header::HeaderName, value: &str) -> Preconditions {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).unwrap());
    Preconditions::from_headers(&headers)
}

fn tag(opaque: &str) -> EntityTag {
    EntityTag::strong(opaque).unwrap()
}

fn begin(preconditions: &Preconditions) -> Begin<'_> {
    let authority = Authority::Register;
    Begin::new(&Method::PUT, preconditions, 7, TTL).with_authority(authority)
}

fn seen(record: &Record, opaque: &str, now: Timestamp) -> Observed {
    let observation = Observation::Present {
        variant: Variant::only(),
        tag: Some(tag(opaque)),
        last_modified: None,
    };
    let snapshot = record.snapshot(now).expect("no write is in flight");
    Observed::new(snapshot, observation, Authority::Register)
}

fn observe(record: &Record, opaque: &str, now: Timestamp) -> Record {
    let command = Command::Observe(seen(record, opaque, now));
    record
        .apply(&command, now)
        .next
        .expect("an observation that is news")
}

fn grant(record: &Record, now: Timestamp) -> (Record, Grant) {
    let transition = record.apply(&Command::Begin(begin(&Preconditions::default())), now);
    let Outcome::Granted(grant) = transition.outcome else {
        panic!("{:?}", transition.outcome)
    };
    (transition.next.unwrap(), grant)
}

fn refusal(record: &Record, command: &Command<'_>, now: Timestamp) -> Refusal {
    let transition = record.apply(command, now);
    assert_eq!(transition.next, None, "a refused command changes nothing");
    match transition.outcome {
        Outcome::Refused(refusal) => refusal,
        other => panic!("expected a refusal: {other:?}"),
    }
}

fn put<'a>(preconditions: &'a Preconditions, body: &[u8]) -> Write<'a> {
    let content = Content::Hashed {
        hash: ContentHash::of(body),
        payload: body.to_vec().into(),
    };
    Write::new(&Method::PUT, preconditions, content, 1)
}

fn written(record: &Record, write: Write<'_>, now: Timestamp) -> Record {
    let transition = record.apply(&Command::Write(write), now);
    assert!(
        matches!(transition.outcome, Outcome::Written(_)),
        "{:?}",
        transition.outcome
    );
    transition.next.unwrap()
}

#[test]
fn revisions_grow_even_if_the_clock_goes_back() {
    let none = Preconditions::default();
    let first = written(&Record::absent(), put(&none, b"1"), at(10.0));
    let second = written(&first, put(&none, b"2"), at(3.0));
    assert!(second.revision() > first.revision());
}

#[test]
fn the_same_bytes_written_twice_get_two_tags() {
    let none = Preconditions::default();
    let first = written(&Record::absent(), put(&none, b"same"), at(0.0));
    let second = written(&first, put(&none, b"same"), at(0.0));
    let tags = |record: &Record| record.settled(at(0.0)).unwrap().tags().to_vec();
    assert_ne!(tags(&first), tags(&second));
}

#[test]
fn a_second_writer_waits_while_a_write_is_in_flight() {
    let (record, granted) = grant(&Record::unknown(), at(0.0));
    let none = Preconditions::default();
    let wait = Refusal::InFlight {
        deadline: granted.deadline,
    };
    assert_eq!(
        refusal(&record, &Command::Begin(begin(&none)), at(29.9)),
        wait
    );
    assert_eq!(
        refusal(&record, &Command::Write(put(&none, b"1")), at(29.9)),
        wait
    );
    let outcome = record
        .apply(&Command::Begin(begin(&none)), at(30.0))
        .outcome;
    assert!(
        matches!(outcome, Outcome::Granted(_)),
        "the permit ends at the deadline"
    );
}

#[test]
fn a_condition_is_evaluated_against_the_recorded_tag() {
    let record = observe(&Record::unknown(), "v1", at(0.0));
    let matching = condition(header::IF_MATCH, "\"v1\"");
    let outcome = record
        .apply(&Command::Begin(begin(&matching)), at(1.0))
        .outcome;
    assert!(matches!(outcome, Outcome::Granted(_)));
    let stale = condition(header::IF_MATCH, "\"v0\"");
    let failed = Refusal::PreconditionFailed {
        precondition: Precondition::IfMatch,
        current: Some(tag("v1")),
    };
    assert_eq!(
        refusal(&record, &Command::Begin(begin(&stale)), at(1.0)),
        failed
    );
}

#[test]
fn an_unknown_version_is_probed_before_a_condition_is_evaluated() {
    let any = condition(header::IF_NONE_MATCH, "*");
    let unknown = Record::unknown();
    assert_eq!(
        refusal(&unknown, &Command::Begin(begin(&any)), at(0.0)),
        Refusal::ProbeFirst
    );
    let observed = Some(seen(&unknown, "v1", at(0.0)));
    let probed = Command::Begin(begin(&any).with_observed(observed));
    let failed = refusal(&unknown, &probed, at(0.0));
    assert!(
        matches!(failed, Refusal::PreconditionFailed { .. }),
        "the probe found it: {failed:?}"
    );
}

#[test]
fn without_authority_a_recorded_version_is_probed_as_well() {
    let record = observe(&Record::unknown(), "v1", at(0.0));
    let matching = condition(header::IF_MATCH, "\"v1\"");
    let command = Command::Begin(begin(&matching).with_authority(Authority::Resource));
    assert_eq!(refusal(&record, &command, at(0.0)), Refusal::ProbeFirst);
}

#[test]
fn an_outdated_probe_is_ignored() {
    let unknown = Record::unknown();
    let old = seen(&unknown, "v1", at(0.0));
    let newer = observe(&unknown, "v2", at(0.1));
    let stale = condition(header::IF_MATCH, "\"v1\"");
    let command = Command::Begin(begin(&stale).with_observed(Some(old.clone())));
    assert!(matches!(
        refusal(&newer, &command, at(0.2)),
        Refusal::PreconditionFailed { .. }
    ));
    assert_eq!(
        refusal(&newer, &Command::Observe(old), at(0.2)),
        Refusal::Stale
    );
}

#[test]
fn a_read_that_began_during_a_write_cannot_be_recorded() {
    let (record, _) = grant(&Record::unknown(), at(0.0));
    assert_eq!(record.snapshot(at(1.0)), None);
    assert_eq!(record.settled(at(1.0)), None);
}

#[test]
fn a_read_overtaken_by_a_write_cannot_be_recorded() {
    let before = observe(&Record::unknown(), "v1", at(0.0));
    let read = seen(&before, "v1", at(0.1));
    let (in_flight, granted) = grant(&before, at(0.2));
    assert_eq!(
        refusal(&in_flight, &Command::Observe(read.clone()), at(0.3)),
        Refusal::Stale
    );
    let content = Content::Tagged {
        variant: Variant::only(),
        tag: tag("v2"),
    };
    let commit = Command::Commit(Commit::new(granted.token, content));
    let after = in_flight.apply(&commit, at(0.4)).next.unwrap();
    assert_eq!(
        refusal(&after, &Command::Observe(read), at(0.5)),
        Refusal::Stale
    );
    assert_eq!(after.settled(at(0.5)).unwrap().tags(), [tag("v2")]);
}

#[test]
fn a_lost_permit_commits_nothing() {
    let (first, granted) = grant(&Record::unknown(), at(0.0));
    let (second, _) = grant(&first, at(31.0));
    let commit = Command::Commit(Commit::new(granted.token, Content::Unknown));
    assert_eq!(refusal(&second, &commit, at(31.0)), Refusal::Stale);
    assert_eq!(
        refusal(&second, &Command::Abort(granted.token), at(31.0)),
        Refusal::Stale
    );
    let doubt = Command::Doubt(Doubt::new(granted.token, Duration::ZERO));
    assert_eq!(refusal(&second, &doubt, at(31.0)), Refusal::Stale);
}

#[test]
fn a_late_commit_succeeds_until_a_command_relies_on_the_deadline() {
    let (record, granted) = grant(&Record::unknown(), at(0.0));
    assert_eq!(*record.state(at(31.0)), State::Unknown);
    let content = Content::Tagged {
        variant: Variant::only(),
        tag: tag("v1"),
    };
    let commit = Command::Commit(Commit::new(granted.token, content));
    let after = record.apply(&commit, at(31.0)).next.unwrap();
    assert_eq!(after.settled(at(31.0)).unwrap().tags(), [tag("v1")]);
}

#[test]
fn an_aborted_write_keeps_the_version_and_a_doubted_one_makes_it_unknown() {
    let before = observe(&Record::unknown(), "v1", at(0.0));
    let (record, granted) = grant(&before, at(1.0));
    let aborted = record
        .apply(&Command::Abort(granted.token), at(2.0))
        .next
        .unwrap();
    assert_eq!(aborted.settled(at(2.0)).unwrap().tags(), [tag("v1")]);
    let grace = Duration::from_secs(1);
    let doubt = Command::Doubt(Doubt::new(granted.token, grace));
    let doubted = record.apply(&doubt, at(2.0)).next.unwrap();
    assert!(
        doubted.permit(at(2.9)).is_some(),
        "an effect may still come"
    );
    assert_eq!(
        (doubted.permit(at(3.0)), doubted.state(at(3.0))),
        (None, &State::Unknown)
    );
}

#[test]
fn doubt_never_extends_a_permit() {
    let (record, granted) = grant(&Record::unknown(), at(0.0));
    let grace = Duration::from_hours(1);
    let doubt = Command::Doubt(Doubt::new(granted.token, grace));
    let doubted = record.apply(&doubt, at(1.0)).next.unwrap();
    assert_eq!(doubted.permit(at(1.0)).unwrap().deadline, granted.deadline);
}

#[test]
fn otherwise_equal_grants_of_racing_processes_differ() {
    let none = Preconditions::default();
    let grant_to = |nonce| {
        let mut begin = begin(&none);
        begin.nonce = nonce;
        Record::unknown()
            .apply(&Command::Begin(begin), at(0.0))
            .next
            .unwrap()
    };
    assert_ne!(grant_to(1), grant_to(2));
    let write_by = |nonce| {
        let mut write = put(&none, b"same");
        write.nonce = nonce;
        written(&Record::absent(), write, at(0.0))
    };
    assert_ne!(write_by(1), write_by(2));
}

#[test]
fn another_tag_of_a_representation_is_a_new_version_and_drops_the_others() {
    let gzip = Variant("accept-encoding: gzip\n".into());
    let plain = observe(&Record::unknown(), "plain-1", at(0.0));
    let observation = Observation::Present {
        variant: gzip.clone(),
        tag: Some(tag("gzip-1")),
        last_modified: None,
    };
    let snapshot = plain.snapshot(at(0.1)).unwrap();
    let command = Command::Observe(Observed::new(snapshot, observation, Authority::Register));
    let both = plain.apply(&command, at(0.1)).next.unwrap();
    let version = both.settled(at(0.1)).unwrap();
    assert_eq!(version.tags(), [tag("plain-1"), tag("gzip-1")]);
    assert_eq!(version.variant_of(&tag("gzip-1")), Some(&gzip));
    assert_eq!(
        version.generation(),
        plain.settled(at(0.1)).unwrap().generation()
    );
    let changed = observe(&both, "plain-2", at(0.2));
    assert_eq!(changed.settled(at(0.2)).unwrap().tags(), [tag("plain-2")]);
}

#[test]
fn an_observation_without_news_changes_nothing() {
    let record = observe(&Record::unknown(), "v1", at(0.0));
    let again = record.apply(&Command::Observe(seen(&record, "v1", at(5.0))), at(5.0));
    assert_eq!((again.next, again.outcome), (None, Outcome::Observed));
}

#[test]
fn without_authority_a_date_moves_on_when_another_representation_is_first_seen() {
    let record = observe(&Record::unknown(), "plain-1", at(0.0));
    let observation = Observation::Present {
        variant: Variant("accept-encoding: gzip\n".into()),
        tag: Some(tag("gzip-2")),
        last_modified: None,
    };
    let snapshot = record.snapshot(at(100.0)).unwrap();
    let observed = Observed::new(snapshot, observation, Authority::Resource);
    let date = condition(header::IF_UNMODIFIED_SINCE, "Tue, 14 Nov 2023 22:13:30 GMT"); // ten seconds in
    let command = begin(&date)
        .with_observed(Some(observed))
        .with_authority(Authority::Resource);
    let refused = refusal(&record, &Command::Begin(command), at(100.0));
    assert!(
        matches!(refused, Refusal::PreconditionFailed { .. }),
        "the change may be newer: {refused:?}"
    );
}

#[test]
fn a_resources_own_date_counts_only_after_its_second_has_ended() {
    let date = HttpDate::from_unix(1_700_000_005);
    let dated = |now| {
        let record = Record::unknown();
        let observation = Observation::Present {
            variant: Variant::only(),
            tag: Some(tag("v1")),
            last_modified: Some(date),
        };
        let snapshot = record.snapshot(now).unwrap();
        let observed = Observed::new(snapshot, observation, Authority::Register);
        let next = record.apply(&Command::Observe(observed), now).next.unwrap();
        next.settled(now).unwrap().last_modified()
    };
    assert_eq!(
        dated(at(5.9)),
        HttpDate::from_unix(1_700_000_006),
        "another write may share that second"
    );
    assert_eq!(dated(at(6.0)), date);
}

/// A write at 10.7 is read before its second has ended, so the client has date 11. Another write without a tag follows at
/// 11.5.
#[test]
fn a_resources_own_date_does_not_recur_after_a_write_without_a_tag() {
    let before = observe(&Record::unknown(), "v1", at(10.8));
    let held = before.settled(at(11.2)).unwrap().last_modified();
    let (record, granted) = grant(&before, at(11.4));
    let commit = Command::Commit(Commit::new(granted.token, Content::Unknown));
    let unknown = record.apply(&commit, at(11.5)).next.unwrap();
    let observation = Observation::Present {
        variant: Variant::only(),
        tag: Some(tag("v2")),
        last_modified: Some(HttpDate::from_unix(1_700_000_011)),
    };
    let snapshot = unknown.snapshot(at(13.0)).unwrap();
    let observed = Observed::new(snapshot, observation, Authority::Resource);
    let after = unknown
        .apply(&Command::Observe(observed), at(13.0))
        .next
        .unwrap();
    assert!(after.settled(at(13.0)).unwrap().last_modified() > held);
}

#[test]
fn a_probed_absence_grants_once_and_is_not_recorded() {
    let unknown = Record::unknown();
    let snapshot = unknown.snapshot(at(0.0)).unwrap();
    let absent = Observed::new(snapshot, Observation::Absent, Authority::Register);
    let any = condition(header::IF_NONE_MATCH, "*");
    let transition = unknown.apply(
        &Command::Begin(begin(&any).with_observed(Some(absent))),
        at(0.0),
    );
    let Outcome::Granted(granted) = transition.outcome else {
        panic!("{:?}", transition.outcome)
    };
    let aborted = transition
        .next
        .unwrap()
        .apply(&Command::Abort(granted.token), at(1.0))
        .next
        .unwrap();
    assert_eq!(
        refusal(&aborted, &Command::Begin(begin(&any)), at(1.0)),
        Refusal::ProbeFirst
    );
}

#[test]
fn a_retry_gets_the_first_answer_even_if_its_condition_is_false_now() {
    let create = condition(header::IF_NONE_MATCH, "*");
    let request = Some(RequestId::of(&[b"retry me"]));
    let first = Record::absent().apply(
        &Command::Write(put(&create, b"1").with_request(request)),
        at(0.0),
    );
    let Outcome::Written(receipt) = first.outcome else {
        panic!("{:?}", first.outcome)
    };
    assert!(receipt.created);
    let record = first.next.unwrap();
    let retry = record.apply(
        &Command::Write(put(&create, b"1").with_request(request)),
        at(1.0),
    );
    assert_eq!(
        (retry.next, retry.outcome),
        (None, Outcome::Replayed(receipt))
    );
    let other = Some(RequestId::of(&[b"another"]));
    let command = Command::Write(put(&create, b"1").with_request(other));
    assert!(matches!(
        refusal(&record, &command, at(1.0)),
        Refusal::PreconditionFailed { .. }
    ));
}

#[test]
fn answers_for_retries_are_bounded_by_number_and_age() {
    let none = Preconditions::default();
    let id = |number: usize| Some(RequestId::of(&[&number.to_le_bytes()]));
    let write = |record: &Record, number, now| {
        written(record, put(&none, b"1").with_request(id(number)), now)
    };
    let is_remembered = |record: &Record, number| {
        let retry = Command::Write(put(&none, b"1").with_request(id(number)));
        matches!(record.apply(&retry, at(30.0)).outcome, Outcome::Replayed(_))
    };
    let most = Record::MAX_REPLIES;
    let full = (0..most).fold(Record::absent(), |record, number| {
        write(&record, number, at(0.0))
    });
    assert!(is_remembered(&full, 0));
    let over = write(&full, most, at(9.0));
    assert!(
        !is_remembered(&over, 0) && is_remembered(&over, 1),
        "the oldest makes room"
    );
    let later = write(&full, most, at(10.5));
    let remembered: Vec<usize> = (0..=most)
        .filter(|number| is_remembered(&later, *number))
        .collect();
    assert_eq!(
        remembered,
        (most + 1 - Record::MIN_REPLIES..=most).collect::<Vec<_>>()
    );
}

#[test]
fn deleting_leaves_a_tombstone_and_an_absent_resource_cannot_be_deleted() {
    let none = Preconditions::default();
    let delete = || Write::new(&Method::DELETE, &none, Content::Absent, 1);
    assert_eq!(
        refusal(&Record::absent(), &Command::Write(delete()), at(0.0)),
        Refusal::NotFound
    );
    let present = written(&Record::absent(), put(&none, b"1"), at(0.0));
    let absent = written(&present, delete(), at(1.0));
    assert_eq!(*absent.state(at(1.0)), State::Absent);
    assert!(absent.revision() > present.revision());
    assert!(absent.is_forgettable(at(1.0)));
    assert!(!present.is_forgettable(at(1.0)));
}

#[test]
fn content_derived_from_another_generation_is_refused() {
    let none = Preconditions::default();
    let first = written(&Record::absent(), put(&none, b"1"), at(0.0));
    let based_on = first.settled(at(0.0)).map(Version::generation);
    let second = written(&first, put(&none, b"2").with_based_on(based_on), at(1.0));
    let late = Command::Write(put(&none, b"3").with_based_on(based_on));
    assert_eq!(refusal(&second, &late, at(2.0)), Refusal::Stale);
}

#[test]
fn an_old_read_cannot_be_recorded_after_an_eviction() {
    let read = seen(&Record::unknown(), "v1", at(0.0));
    let (in_flight, granted) = grant(&Record::unknown(), at(0.1));
    let commit = Command::Commit(Commit::new(granted.token, Content::Unknown));
    let gone = in_flight.apply(&commit, at(0.2)).next.unwrap();
    let forgotten = Record::forgotten(gone.revision()).dated(gone.latest_date());
    assert_eq!(
        refusal(&forgotten, &Command::Observe(read), at(0.3)),
        Refusal::Stale
    );
}

#[test]
fn bytes_that_are_not_a_record_of_this_release_are_rejected() {
    let record = observe(&Record::unknown(), "v1", at(0.0));
    let bytes = record.encode();
    assert_eq!(Record::decode(&bytes), Ok(record));
    let kind = |bytes: &[u8]| Record::decode(bytes).unwrap_err().kind();
    let mut previous = bytes.clone();
    previous[0] -= 1;
    assert_eq!(
        kind(&previous),
        DecodeErrorKind::Older(previous[0]),
        "no release has written it, so none reads it"
    );
    let mut newer = bytes.clone();
    newer[0] += 1;
    assert_eq!(kind(&newer), DecodeErrorKind::Newer(newer[0]));
    assert_eq!(kind(&[]), DecodeErrorKind::Corrupt);
    assert_eq!(
        kind(&[bytes.as_slice(), b"x"].concat()),
        DecodeErrorKind::Corrupt
    );
    for end in 0..bytes.len() {
        assert_eq!(
            kind(&bytes[..end]),
            DecodeErrorKind::Corrupt,
            "cut at {end}"
        );
    }
}

/// Stored records must stay readable.
#[test]
fn the_encoding_does_not_change_by_accident() {
    let create = condition(header::IF_NONE_MATCH, "*");
    let request = Some(RequestId::of(&[b"request"]));
    let record = written(
        &Record::absent(),
        put(&create, b"body").with_request(request),
        at(0.0),
    );
    let none = Preconditions::default();
    let id = "936da01f-9abd-4d9d-80c7-02af85c822a8".parse().unwrap();
    let operation = |action| {
        LeaseOperation::new(action, &none, 9)
            .with_authority(Authority::Register)
            .with_request(Some(RequestId::of(&[b"lease"])))
    };
    let acquire = operation(LeaseAction::Acquire {
        id,
        duration: LeaseDuration::Seconds(60),
        holder: "host-7".parse().ok(),
    });
    let record = record
        .apply(&Command::Lease(acquire), at(0.5))
        .next
        .unwrap();
    let lease = LeaseUse::Write(Some(id));
    let granted = record
        .apply(&Command::Begin(begin(&none).with_lease(lease)), at(1.0))
        .next
        .unwrap();
    let broken = operation(LeaseAction::Break {
        period: None,
        token: None,
    });
    let broken = granted
        .apply(&Command::Lease(broken), at(2.0))
        .next
        .unwrap();
    let stored: Vec<_> = include_str!("../data/record-v4.hex").lines().collect();
    for (record, stored) in [&granted, &broken].into_iter().zip(&stored) {
        assert_eq!(hex::encode(record.encode()), *stored);
        assert_eq!(
            Record::decode(&hex::decode(stored).unwrap()).as_ref(),
            Ok(record)
        );
    }
    assert_eq!(stored.len(), 2);
}

/// A date never repeats, even if the clock is behind, was set back, or differs from another process's clock. Otherwise
/// a client with the old date could overwrite a version that it has never seen.
#[test]
fn no_two_versions_share_a_date() {
    let none = Preconditions::default();
    let mut record = Record::absent();
    let mut dates = Vec::new();
    for now in [1000.1, 1000.2, 1000.9, 995.0, 3.0, 3.0, 1002.5] {
        for body in [&b"a"[..], b"b"] {
            record = record
                .apply(&Command::Write(put(&none, body)), at(now))
                .next
                .unwrap();
            dates.push(record.settled(at(now)).unwrap().last_modified());
        }
        // Dates stay unique across deletions and restarts.
        let deletion = Write::new(&Method::PUT, &none, Content::Absent, 1);
        record = record
            .apply(&Command::Write(deletion), at(now))
            .next
            .unwrap();
        record = Record::decode(&record.encode()).unwrap();
        assert!(
            !record.is_forgettable(at(now)),
            "a date in the future must stay distinguishable from later ones"
        );
    }
    assert!(
        dates.is_sorted_by(|before, after| before < after),
        "{dates:?}"
    );
    let date = condition(header::IF_UNMODIFIED_SINCE, &dates[0].to_string());
    let stale = put(&date, b"c");
    record = record
        .apply(&Command::Write(put(&none, b"unseen")), at(1000.3))
        .next
        .unwrap();
    assert!(matches!(
        refusal(&record, &Command::Write(stale), at(1003.0)),
        Refusal::PreconditionFailed { .. }
    ));
}

/// The clock was a day ahead when the permit was granted.
#[test]
fn the_remaining_time_of_a_permit_never_exceeds_its_duration() {
    let (record, granted) = grant(&Record::unknown(), at(86_400.0));
    assert_eq!(record.permit(at(0.0)).unwrap().deadline, at(30.0));
    let overlong: Vec<_> = record.overlong(at(0.0)).collect();
    assert_eq!(overlong, [(Overlong::Permit(granted.token), TTL)]);
    assert_eq!(record.overlong(at(86_400.0)).count(), 0);
    let over = record.without_overlong(overlong[0].0, at(30.0));
    assert_eq!(over.permit(at(30.0)), None);
    assert_eq!(*over.state(at(30.0)), State::Unknown);
}

/// A change of a version's own data is none of the version: a reader's tag and date still name it.
#[test]
fn application_data_changes_without_a_new_version() {
    let none = Preconditions::default();
    let kept = |preconditions| {
        Write::new(
            &Method::PUT,
            preconditions,
            Content::Kept {
                payload: "data".into(),
            },
            2,
        )
    };
    let first = written(&Record::absent(), put(&none, b"1"), at(0.0));
    let version = first.settled(at(0.0)).unwrap();
    let tag = version.tags()[0].clone();
    let unchanged = Preconditions::unchanged(Some(&tag));
    let transition = first.apply(&Command::Write(kept(&unchanged)), at(5.0));
    let Outcome::Written(receipt) = &transition.outcome else {
        panic!("{:?}", transition.outcome)
    };
    let second = transition.next.as_ref().unwrap();
    let after = second.settled(at(5.0)).unwrap();
    assert_eq!(
        (after.tags(), after.generation()),
        (version.tags(), version.generation())
    );
    assert_eq!(
        (after.last_modified(), second.latest_date()),
        (version.last_modified(), first.latest_date())
    );
    assert_eq!(
        (after.payload(), receipt.generation),
        (&"data".into(), version.generation())
    );
    assert!(second.revision() > first.revision() && !receipt.created);

    for (record, now) in [
        (Record::absent(), at(0.0)),
        (Record::unknown(), at(0.0)),
        (grant(&first, at(0.0)).0, at(30.0)),
    ] {
        assert_eq!(
            refusal(&record, &Command::Write(kept(&none)), now),
            Refusal::NotFound
        );
    }
    let stale = Preconditions::unchanged(Some(&EntityTag::strong("other").unwrap()));
    assert!(matches!(
        refusal(second, &Command::Write(kept(&stale)), at(6.0)),
        Refusal::PreconditionFailed { .. }
    ));
    let third = written(second, put(&none, b"2"), at(6.0));
    assert!(third.latest_date() > second.latest_date());
}
