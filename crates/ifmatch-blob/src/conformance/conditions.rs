//! Conditions apply to the version that a write replaces, and are evaluated before the body is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::{BoxError, Put, RequestKey, StoreErrorKind, Upload};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::precondition::{Precondition, Preconditions};
use ifmatch_core::tag::TagList;

use super::{Subject, blob, if_absent, if_match, put, refusal};

pub(crate) async fn check(subject: &Subject) {
    if_match_fails_without_a_blob(subject).await;
    a_create_succeeds_once(subject).await;
    only_the_current_strong_tag_matches(subject).await;
    a_date_is_compared(subject).await;
    a_deletion_is_conditional(subject).await;
    the_body_of_a_refused_write_is_not_read(subject).await;
    a_retry_gets_the_first_answer(subject).await;
}

async fn if_match_fails_without_a_blob(subject: &Subject) {
    let blob = blob("conditions", "absent");
    let any = Preconditions { if_match: Some(TagList::Any), ..Preconditions::default() };
    for conditions in [any, if_match(&EntityTag::strong("x").unwrap())] {
        let refused = subject.write_if(&blob, conditions, "1").await;
        assert_eq!(refusal(refused), (Precondition::IfMatch, None));
    }
    assert!(subject.head(&blob).await.is_none());
}

async fn a_create_succeeds_once(subject: &Subject) {
    let blob = blob("conditions", "create");
    let first = subject.write_if(&blob, if_absent(), "1").await.unwrap();
    assert!(first.created);
    let second = subject.write_if(&blob, if_absent(), "2").await;
    assert_eq!(refusal(second), (Precondition::IfNoneMatch, first.tag.clone()));
    assert_eq!(subject.read(&blob).await.unwrap().1, "1");
    subject.delete_if(&blob, Preconditions::default()).await.unwrap();
    let third = subject.write_if(&blob, if_absent(), "3").await.unwrap();
    assert!(third.created && third.tag != first.tag);
}

async fn only_the_current_strong_tag_matches(subject: &Subject) {
    let blob = blob("conditions", "match");
    let old = subject.write(&blob, "1").await.tag.unwrap();
    let current = subject.write_if(&blob, if_match(&old), "2").await.unwrap().tag.unwrap();
    let weak = EntityTag::parse(format!("W/{current}").as_bytes()).unwrap();
    for tag in [old, weak, EntityTag::strong("x").unwrap()] {
        let refused = subject.write_if(&blob, if_match(&tag), "3").await;
        assert_eq!(refusal(refused), (Precondition::IfMatch, Some(current.clone())));
    }
    let none_of =
        Preconditions { if_none_match: Some(TagList::Tags(vec![current.clone()])), ..Preconditions::default() };
    assert_eq!(refusal(subject.write_if(&blob, none_of, "3").await).0, Precondition::IfNoneMatch);
    assert_eq!(subject.read(&blob).await.unwrap().1, "2");
    let other = Preconditions {
        if_none_match: Some(TagList::Tags(vec![EntityTag::strong("x").unwrap()])),
        ..if_match(&current)
    };
    assert!(!subject.write_if(&blob, other, "4").await.unwrap().created);
    assert_eq!(subject.read(&blob).await.unwrap().1, "4");
}

async fn a_date_is_compared(subject: &Subject) {
    let blob = blob("conditions", "date");
    subject.write(&blob, "1").await;
    let date = subject.head(&blob).await.unwrap().last_modified;
    let since = |date| Preconditions { if_unmodified_since: Some(date), ..Preconditions::default() };
    let early = subject.write_if(&blob, since(date.previous()), "2").await;
    assert_eq!(refusal(early).0, Precondition::IfUnmodifiedSince);
    subject.write_if(&blob, since(date), "2").await.unwrap();
    assert_eq!(
        refusal(subject.delete_if(&blob, since(HttpDate::from_unix(-5))).await).0,
        Precondition::IfUnmodifiedSince
    );
}

async fn a_deletion_is_conditional(subject: &Subject) {
    let blob = blob("conditions", "delete");
    let absent = subject.delete_if(&blob, Preconditions { if_match: Some(TagList::Any), ..Preconditions::default() });
    assert_eq!(absent.await.unwrap_err().kind(), &StoreErrorKind::NotFound);
    let old = subject.write(&blob, "1").await.tag.unwrap();
    let current = subject.write(&blob, "1").await.tag.unwrap();
    assert_eq!(refusal(subject.delete_if(&blob, if_match(&old)).await), (Precondition::IfMatch, Some(current.clone())));
    subject.delete_if(&blob, if_match(&current)).await.unwrap();
    assert!(subject.read(&blob).await.is_none());
    assert_eq!(subject.delete_if(&blob, if_match(&current)).await.unwrap_err().kind(), &StoreErrorKind::NotFound);
}

async fn the_body_of_a_refused_write_is_not_read(subject: &Subject) {
    let blob = blob("conditions", "early");
    subject.write(&blob, "1").await;
    let asked = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&asked);
    let body = StreamBody::new(stream::once(async move {
        asks.store(true, Ordering::SeqCst);
        Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"2")))
    }));
    let refused = Put { preconditions: if_absent(), body: Upload::new(body), ..put("") };
    assert_eq!(refusal(subject.store.put(&blob, refused).await).0, Precondition::IfNoneMatch);
    assert!(!asked.load(Ordering::SeqCst));
}

async fn a_retry_gets_the_first_answer(subject: &Subject) {
    if !subject.knows_retries {
        return;
    }
    let blob = blob("conditions", "retry");
    let create = |key: &[u8], bytes: &'static str| Put {
        preconditions: if_absent(),
        request: Some(RequestKey::of(&[key])),
        ..put(bytes)
    };
    let first = subject.store.put(&blob, create(b"1", "hello")).await.unwrap();
    let again = subject.store.put(&blob, create(b"1", "hello")).await.unwrap();
    assert_eq!((again.tag, again.created), (first.tag.clone(), true));
    assert_eq!(refusal(subject.store.put(&blob, create(b"1", "other")).await).1, first.tag.clone());
    assert_eq!(refusal(subject.store.put(&blob, create(b"2", "hello")).await).1, first.tag);
    assert_eq!(subject.read(&blob).await.unwrap().1, "hello");
}
