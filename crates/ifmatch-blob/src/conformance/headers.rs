//! Header fields change without the bytes, and each change is a version.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Precondition;

use super::{Subject, blob, if_match, kind, pattern, put, refusal};
use crate::headers::{BlobHeaders, ContentMd5, FieldText};
use crate::store::{HeaderChange, Md5Use, Put, RequestKey, SetHeaders, StoreErrorKind, Written};

pub(crate) async fn check(subject: &Subject) {
    if !subject.keeps_headers {
        a_change_is_refused_without_header_fields(subject).await;
        return;
    }
    for (name, length) in [("small", 5), ("large", 100_000)] {
        a_change_keeps_the_bytes(subject, name, length).await;
    }
    for (name, length) in [("small", 5), ("large", 100_000), ("in-parts", 9 << 20)] {
        an_md5_is_kept(subject, name, length).await;
    }
    a_change_is_conditional(subject).await;
    a_retry_changes_nothing_again(subject).await;
    no_change_is_lost(subject).await;
    no_bytes_are_lost(subject).await;
}

fn text(value: &str) -> FieldText {
    FieldText::new(value).expect("a valid value")
}

fn metadata(value: &str) -> HeaderChange {
    HeaderChange::Metadata([("owner".into(), text(value))].into())
}

/// Returns an unconditional change of header fields.
pub fn set(change: HeaderChange) -> SetHeaders {
    SetHeaders::new(change)
}

async fn a_change_is_refused_without_header_fields(subject: &Subject) {
    let blob = blob("headers", "unsupported");
    subject.write(&blob, "bytes").await;
    let refused = subject.store.set_headers(&blob, set(metadata("me"))).await;
    assert_eq!(kind(refused), StoreErrorKind::Unsupported);
    assert_eq!(subject.read(&blob).await.unwrap().1, "bytes");
}

async fn a_change_keeps_the_bytes(subject: &Subject, name: &str, length: usize) {
    let blob = blob("headers", name);
    let checksum = Some(text("sha1:qvTGHdzF6KLavt4PO0gs2a6pQ00="));
    let kept = BlobHeaders {
        content_type: Some(text("text/plain")),
        checksum: checksum.clone(),
        ..BlobHeaders::default()
    };
    let first = subject
        .store
        .put(
            &blob,
            Put {
                headers: kept,
                ..put(pattern(length))
            },
        )
        .await
        .unwrap();
    let before = subject.head(&blob).await.unwrap();

    let second = subject
        .store
        .set_headers(&blob, set(metadata("me")))
        .await
        .unwrap();
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!(bytes, pattern(length));
    assert_eq!(
        (info.length, info.hash, info.created),
        (before.length, before.hash, before.created)
    );
    assert_eq!(info.tag, second.tag);
    assert_ne!(second.tag, first.tag);
    assert!(!second.created && info.last_modified >= before.last_modified);
    assert!(info.generation >= before.generation && info.generation == second.generation);
    assert_eq!(info.headers.content_type, Some(text("text/plain")));
    assert_eq!(
        info.headers.metadata,
        BTreeMap::from([("owner".into(), text("me"))])
    );

    let fields = BlobHeaders {
        cache_control: Some(text("no-cache")),
        ..BlobHeaders::default()
    };
    let third = subject
        .store
        .set_headers(&blob, set(HeaderChange::Fields(fields.into())))
        .await
        .unwrap();
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!((bytes, info.tag), (pattern(length), third.tag.clone()));
    assert_ne!(third.tag, second.tag);
    let fields = (
        untyped(&info.headers).content_type,
        info.headers.cache_control,
    );
    assert_eq!(fields, (None, Some(text("no-cache"))));
    assert_eq!(info.headers.checksum, checksum);
    assert_eq!(
        info.headers.metadata,
        BTreeMap::from([("owner".into(), text("me"))])
    );

    let last = subject
        .write_if(&blob, if_match(&third.tag.unwrap()), "other bytes")
        .await
        .unwrap();
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!(
        (info.tag, bytes, untyped(&info.headers)),
        (last.tag, "other bytes".into(), BlobHeaders::default())
    );
    assert_eq!(
        info.created, before.created,
        "an overwritten blob stays the same blob"
    );
}

async fn an_md5_is_kept(subject: &Subject, name: &str, length: usize) {
    let blob = blob("md5", name);
    let bytes = pattern(length);
    let (right, wrong) = (ContentMd5::of(&bytes), ContentMd5::of(b"other bytes"));
    let write = async |md5: Md5Use, content_md5: Option<ContentMd5>| {
        let headers = BlobHeaders {
            content_md5,
            ..BlobHeaders::default()
        };
        let length = u64::try_from(length).ok();
        subject
            .store
            .put(
                &blob,
                Put {
                    headers,
                    md5,
                    length,
                    ..put(bytes.clone())
                },
            )
            .await
    };
    let kept = async || subject.head(&blob).await.unwrap().headers.content_md5;

    let written = write(Md5Use::Computed, Some(right)).await.unwrap();
    assert_eq!((written.md5, kept().await), (Some(right), Some(right)));
    assert_eq!(
        kind(write(Md5Use::Computed, Some(wrong)).await),
        StoreErrorKind::DigestMismatch
    );
    assert_eq!(
        (subject.tag(&blob).await, kept().await),
        (written.tag.unwrap(), Some(right))
    );
    subject
        .store
        .set_headers(&blob, set(metadata("me")))
        .await
        .unwrap();
    assert_eq!(kept().await, Some(right));

    // A store that sends a long body in parts has sent its headers before the MD5 is known.
    let computed = write(Md5Use::Computed, None).await.unwrap().md5;
    assert!(
        computed == Some(right) || (computed.is_none() && length > 8 << 20),
        "{computed:?}"
    );
    assert_eq!(kept().await, computed);

    for given in [&[7; 1][..], &[7; 64], wrong.as_bytes()] {
        let given = ContentMd5::given(given).ok();
        let written = write(Md5Use::AsGiven, given).await.unwrap();
        assert_eq!((written.md5, kept().await), (given, given));
    }
    let fields = BlobHeaders {
        content_md5: Some(right),
        ..BlobHeaders::default()
    };
    subject
        .store
        .set_headers(&blob, set(HeaderChange::Fields(fields.into())))
        .await
        .unwrap();
    assert_eq!(kept().await, Some(right));
    assert_eq!(write(Md5Use::AsGiven, None).await.unwrap().md5, None);
    assert_eq!(kept().await, None);
}

/// Some stores report the type of unknown bytes if the client sent none.
fn untyped(headers: &BlobHeaders) -> BlobHeaders {
    let named = headers
        .content_type
        .clone()
        .filter(|named| *named != text("application/octet-stream"));
    BlobHeaders {
        content_type: named,
        ..headers.clone()
    }
}

async fn a_change_is_conditional(subject: &Subject) {
    let absent = blob("headers", "absent");
    assert_eq!(
        kind(subject.store.set_headers(&absent, set(metadata("x"))).await),
        StoreErrorKind::NotFound
    );
    let nowhere = blob("headers-nowhere", "absent");
    let refused = subject
        .store
        .set_headers(&nowhere, set(metadata("x")))
        .await;
    assert_eq!(kind(refused), StoreErrorKind::ContainerNotFound);

    let blob = blob("headers", "conditional");
    let old = subject.write(&blob, "1").await.tag.unwrap();
    let current = subject
        .store
        .set_headers(&blob, set(metadata("a")))
        .await
        .unwrap()
        .tag
        .unwrap();
    let stale = SetHeaders {
        preconditions: if_match(&old),
        ..set(metadata("b"))
    };
    let refused = refusal(subject.store.set_headers(&blob, stale).await);
    assert_eq!(refused, (Precondition::IfMatch, Some(current.clone())));
    assert_eq!(
        subject.head(&blob).await.unwrap().headers.metadata["owner"],
        text("a")
    );
    let fresh = SetHeaders {
        preconditions: if_match(&current),
        ..set(metadata("b"))
    };
    subject.store.set_headers(&blob, fresh).await.unwrap();
    assert_eq!(
        subject.head(&blob).await.unwrap().headers.metadata["owner"],
        text("b")
    );
}

async fn a_retry_changes_nothing_again(subject: &Subject) {
    if !subject.knows_retries {
        return;
    }
    let blob = blob("headers", "retry");
    let tag = subject.write(&blob, "1").await.tag.unwrap();
    let request = || SetHeaders {
        preconditions: if_match(&tag),
        request: Some(RequestKey::of(&[b"set"])),
        ..set(metadata("a"))
    };
    let first = subject.store.set_headers(&blob, request()).await.unwrap();
    let again = subject.store.set_headers(&blob, request()).await.unwrap();
    assert_eq!(
        (&again.tag, again.hash),
        (&first.tag, Some(ContentHash::of(b"1")))
    );
    assert_eq!(subject.tag(&blob).await, first.tag.unwrap());
}

/// Each racer increments a counter in the metadata.
async fn no_change_is_lost(subject: &Subject) {
    let blob = blob("headers", "counter");
    subject.write(&blob, pattern(5_000)).await;
    subject
        .store
        .set_headers(&blob, set(metadata("0")))
        .await
        .unwrap();
    let increment = async || loop {
        let info = subject.head(&blob).await.unwrap();
        let count: usize = info.headers.metadata["owner"].as_str().parse().unwrap();
        let change = metadata(&(count + 1).to_string());
        let attempt = SetHeaders {
            preconditions: if_match(&info.tag.unwrap()),
            ..set(change)
        };
        match subject.store.set_headers(&blob, attempt).await {
            Ok(_) => break,
            Err(error) => match error.kind() {
                StoreErrorKind::PreconditionFailed { .. } | StoreErrorKind::InFlight { .. } => {}
                _ => panic!("{error}"),
            },
        }
    };
    join_all((0..subject.writers).map(|_| increment())).await;
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!(
        info.headers.metadata["owner"].as_str(),
        subject.writers.to_string()
    );
    assert_eq!(bytes, pattern(5_000));
}

/// Writers replace the bytes, others change the fields of the current version, and readers read.
async fn no_bytes_are_lost(subject: &Subject) {
    let blob = blob("headers", "overwritten");
    let version = |filler: u8| vec![filler; 10_000 + usize::from(filler)];
    subject.write(&blob, version(0)).await;
    let rounds = u8::try_from(subject.writers).expect("few");
    let in_time = |result: Result<Written, crate::store::StoreError>| match result {
        Ok(written) => written.tag,
        Err(error) if matches!(error.kind(), StoreErrorKind::InFlight { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    let writing = join_all((1..=rounds).map(|filler| {
        let blob = &blob;
        async move { in_time(subject.store.put(blob, put(version(filler))).await) }
    }));
    let changing = join_all((1..=rounds).map(|value| {
        let blob = &blob;
        async move {
            in_time(
                subject
                    .store
                    .set_headers(blob, set(metadata(&value.to_string())))
                    .await,
            )
        }
    }));
    let reading = async {
        for _ in 0..20 {
            let (info, bytes) = subject.read(&blob).await.unwrap();
            assert_eq!(bytes, version(bytes[0]), "a mixture");
            assert!(
                info.hash.is_none_or(|hash| hash == ContentHash::of(&bytes)),
                "another version's hash"
            );
        }
    };
    let (written, changed, ()) = futures_util::join!(writing, changing, reading);
    let mut tags: Vec<_> = written
        .into_iter()
        .chain(changed)
        .flatten()
        .map(|tag| tag.to_string())
        .collect();
    let all = tags.len();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), all, "no two versions share a tag");
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!(bytes, version(bytes[0]));
    assert!(tags.contains(&info.tag.unwrap().to_string()));
}
