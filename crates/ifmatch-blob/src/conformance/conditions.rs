//! Conditions apply to the version that a write replaces, and are evaluated before the body is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::precondition::{Precondition, Preconditions};
use ifmatch_core::tag::TagList;

use super::{Subject, blob, if_absent, if_match, put, refusal};
use crate::headers::{Append, BlobHeaders};
use crate::store::{BoxError, Put, RequestKey, StoreErrorKind, Upload};

pub(crate) async fn check(subject: &Subject) {
    if_match_fails_without_a_blob(subject).await;
    a_create_succeeds_once(subject).await;
    only_the_current_strong_tag_matches(subject).await;
    a_date_is_compared(subject).await;
    a_deletion_is_conditional(subject).await;
    the_body_of_a_refused_write_is_not_read(subject).await;
    a_retry_gets_the_first_answer(subject).await;
    a_blob_keeps_its_type(subject).await;
}

/// The type is part of the version that is replaced, so it is compared in the same step as the tag, and after it.
async fn a_blob_keeps_its_type(subject: &Subject) {
    if !subject.keeps_headers {
        return;
    }
    for is_named in [false, true] {
        for is_append in [false, true] {
            let blob = blob("conditions", &format!("type-{is_append}-{is_named}"));
            let write = async |is_append: bool, preconditions: Preconditions| {
                let headers = BlobHeaders {
                    append: is_append.then(Append::default),
                    ..BlobHeaders::default()
                };
                let key = format!("{is_append}{preconditions:?}");
                let request = is_named.then(|| RequestKey::of(&[key.as_bytes()]));
                let put = Put {
                    headers,
                    preconditions,
                    request,
                    keeps_type: true,
                    ..put("1")
                };
                subject
                    .store
                    .put(&blob, put)
                    .await
                    .map_err(|error| error.kind().clone())
            };
            let tag = write(is_append, if_absent())
                .await
                .unwrap()
                .tag
                .expect("a tag");
            assert_eq!(
                write(!is_append, if_match(&tag)).await,
                Err(StoreErrorKind::OtherType)
            );
            let refused = write(!is_append, if_absent()).await;
            assert!(
                matches!(refused, Err(StoreErrorKind::PreconditionFailed { .. })),
                "{refused:?}"
            );
            assert_eq!(subject.head(&blob).await.expect("unchanged").tag, Some(tag));
        }
    }
    race_of_types(subject).await;
}

/// Of several creations of one blob with two types, only those with the first type succeed.
async fn race_of_types(subject: &Subject) {
    for round in 0..20 {
        let blob = blob("conditions", &format!("type-race-{round}"));
        let creations = (0..6).map(|number| {
            let headers = BlobHeaders {
                append: (number % 2 == 0).then(Append::default),
                ..BlobHeaders::default()
            };
            let (store, blob) = (Arc::clone(&subject.store), blob.clone());
            async move {
                let written = store
                    .put(
                        &blob,
                        Put {
                            headers: headers.clone(),
                            keeps_type: true,
                            ..put("1")
                        },
                    )
                    .await;
                (
                    headers.append.is_some(),
                    written.map_err(|error| error.kind().clone()),
                )
            }
        });
        let is_append = async || {
            subject
                .head(&blob)
                .await
                .map(|info| info.headers.append.is_some())
        };
        let done = futures_util::future::join_all(creations).await;
        let kept = is_append().await.expect("there it is");
        for (kind, written) in done {
            let is_fine = match written {
                Ok(_) => kind == kept,
                Err(StoreErrorKind::OtherType) => kind != kept,
                Err(StoreErrorKind::InFlight { .. }) => true,
                Err(_) => false,
            };
            assert!(is_fine, "round {round}: {kind}, {kept}");
        }
    }
}

async fn if_match_fails_without_a_blob(subject: &Subject) {
    let blob = blob("conditions", "absent");
    let any = Preconditions {
        if_match: Some(TagList::Any),
        ..Preconditions::default()
    };
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
    assert_eq!(
        refusal(second),
        (Precondition::IfNoneMatch, first.tag.clone())
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "1");
    subject
        .delete_if(&blob, Preconditions::default())
        .await
        .unwrap();
    let third = subject.write_if(&blob, if_absent(), "3").await.unwrap();
    assert!(third.created && third.tag != first.tag);
}

async fn only_the_current_strong_tag_matches(subject: &Subject) {
    let blob = blob("conditions", "match");
    let old = subject.write(&blob, "1").await.tag.unwrap();
    let current = subject
        .write_if(&blob, if_match(&old), "2")
        .await
        .unwrap()
        .tag
        .unwrap();
    let weak = EntityTag::parse(format!("W/{current}").as_bytes()).unwrap();
    for (tag, why) in [
        (old, Precondition::IfMatch),
        (weak, Precondition::WeakIfMatch),
        (EntityTag::strong("x").unwrap(), Precondition::IfMatch),
    ] {
        let refused = subject.write_if(&blob, if_match(&tag), "3").await;
        assert_eq!(refusal(refused), (why, Some(current.clone())));
    }
    let none_of = Preconditions {
        if_none_match: Some(TagList::Tags(vec![current.clone()])),
        ..Preconditions::default()
    };
    assert_eq!(
        refusal(subject.write_if(&blob, none_of, "3").await).0,
        Precondition::IfNoneMatch
    );
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
    let since = |date| Preconditions {
        if_unmodified_since: Some(date),
        ..Preconditions::default()
    };
    let early = subject.write_if(&blob, since(date.previous()), "2").await;
    assert_eq!(refusal(early).0, Precondition::IfUnmodifiedSince);
    subject.write_if(&blob, since(date), "2").await.unwrap();
    assert_eq!(
        refusal(
            subject
                .delete_if(&blob, since(HttpDate::from_unix(-5)))
                .await
        )
        .0,
        Precondition::IfUnmodifiedSince
    );
}

async fn a_deletion_is_conditional(subject: &Subject) {
    let blob = blob("conditions", "delete");
    let absent = subject.delete_if(
        &blob,
        Preconditions {
            if_match: Some(TagList::Any),
            ..Preconditions::default()
        },
    );
    assert_eq!(absent.await.unwrap_err().kind(), &StoreErrorKind::NotFound);
    let old = subject.write(&blob, "1").await.tag.unwrap();
    let current = subject.write(&blob, "1").await.tag.unwrap();
    assert_eq!(
        refusal(subject.delete_if(&blob, if_match(&old)).await),
        (Precondition::IfMatch, Some(current.clone()))
    );
    subject.delete_if(&blob, if_match(&current)).await.unwrap();
    assert!(subject.read(&blob).await.is_none());
    assert_eq!(
        subject
            .delete_if(&blob, if_match(&current))
            .await
            .unwrap_err()
            .kind(),
        &StoreErrorKind::NotFound
    );
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
    let refused = Put {
        preconditions: if_absent(),
        body: Upload::new(body),
        ..put("")
    };
    assert_eq!(
        refusal(subject.store.put(&blob, refused).await).0,
        Precondition::IfNoneMatch
    );
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
    let first = subject
        .store
        .put(&blob, create(b"1", "hello"))
        .await
        .unwrap();
    let again = subject
        .store
        .put(&blob, create(b"1", "hello"))
        .await
        .unwrap();
    assert_eq!((again.tag, again.created), (first.tag.clone(), true));
    assert_eq!(
        refusal(subject.store.put(&blob, create(b"1", "other")).await).1,
        first.tag.clone()
    );
    assert_eq!(
        refusal(subject.store.put(&blob, create(b"2", "hello")).await).1,
        first.tag
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "hello");
}
