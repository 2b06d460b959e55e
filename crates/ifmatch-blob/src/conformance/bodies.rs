//! A body arrives completely, or nothing changes.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;

use super::{Subject, blob, if_absent, pattern, pieces, put};
use crate::store::{BoxError, Put, Reading, StoreError, StoreErrorKind, Upload};

/// Longer than any store accepts in one piece.
const LARGE: usize = 20 * 1024 * 1024 + 12_345;

pub(crate) async fn check(subject: &Subject) {
    a_large_body_is_read_as_written(subject).await;
    a_copy_has_the_bytes_of_the_version_that_was_opened(subject).await;
    a_wrong_declaration_changes_nothing(subject).await;
    a_writer_that_disconnects_changes_nothing(subject).await;
}

fn chunks(bytes: &Bytes, size: usize) -> Vec<Bytes> {
    (0..bytes.len())
        .step_by(size)
        .map(|at| bytes.slice(at..bytes.len().min(at + size)))
        .collect()
}

async fn a_large_body_is_read_as_written(subject: &Subject) {
    let blob = blob("bodies", "large");
    let bytes = pattern(LARGE);
    for (round, size) in [65_537, 9_000_000].into_iter().enumerate() {
        let digest = Some(ContentHash::of(&bytes));
        let length = Some(LARGE as u64);
        let body = pieces(chunks(&bytes, size), None);
        let written = subject
            .store
            .put(
                &blob,
                Put {
                    body,
                    length,
                    digest,
                    ..put("")
                },
            )
            .await
            .unwrap();
        assert_eq!(written.created, round == 0);
        let (info, read) = subject.read(&blob).await.unwrap();
        assert!(
            read == bytes,
            "wrote {} bytes, read {}",
            bytes.len(),
            read.len()
        );
        assert_eq!((info.tag, info.length), (written.tag, LARGE as u64));
    }
    let mut opened = subject
        .store
        .open(&blob, Reading::RANGES)
        .await
        .unwrap()
        .unwrap();
    let border = 8 * 1024 * 1024;
    let part = opened
        .source
        .read(Some(border - 10..border + 10))
        .await
        .unwrap();
    let border = usize::try_from(border).unwrap();
    assert_eq!(
        part.collect().await.unwrap().to_bytes(),
        bytes.slice(border - 10..border + 10)
    );
    let refused = subject
        .store
        .put(
            &blob,
            Put {
                preconditions: if_absent(),
                ..put(bytes)
            },
        )
        .await;
    assert!(matches!(
        refused.unwrap_err().kind(),
        StoreErrorKind::PreconditionFailed { .. }
    ));
    subject
        .delete_if(&blob, Preconditions::default())
        .await
        .unwrap();
}

/// The source is replaced before the copy reads it: the copy has the first version's bytes, or fails without effect.
async fn a_copy_has_the_bytes_of_the_version_that_was_opened(subject: &Subject) {
    for (name, length) in [("short", 1_000), ("long", LARGE)] {
        let (source, target) = (
            blob("bodies", &format!("{name}-source")),
            blob("bodies", &format!("{name}-copy")),
        );
        let bytes = pattern(length);
        for replaced in [false, true] {
            subject.write(&source, bytes.clone()).await;
            let before = subject.read(&target).await.map(|(info, _)| info.tag);
            let opened = subject
                .store
                .open(&source, Reading::RANGES)
                .await
                .unwrap()
                .unwrap();
            if replaced {
                subject.write(&source, "another version").await;
            }
            let copied = match Put::copying(&source, opened).await {
                Ok(put) => subject.store.put(&target, put).await,
                Err(error) => Err(error),
            };
            assert!(copied.is_ok() || replaced, "{copied:?}");
            let read = subject.read(&target).await;
            match copied {
                Ok(written) => assert!(
                    read.is_some_and(|(info, read)| info.tag == written.tag && read == bytes)
                ),
                Err(_) => assert_eq!(read.map(|(info, _)| info.tag), before),
            }
        }
        subject
            .delete_if(&source, Preconditions::default())
            .await
            .unwrap();
        subject
            .delete_if(&target, Preconditions::default())
            .await
            .unwrap();
    }
}

async fn a_wrong_declaration_changes_nothing(subject: &Subject) {
    for (name, bytes) in [("small", pattern(1_000)), ("big", pattern(LARGE))] {
        let length = bytes.len() as u64;
        let whole = || chunks(&bytes, 60_000);
        let broken = || Put {
            body: pieces(whole(), Some("gone")),
            ..put("")
        };
        let intact = || Put {
            body: pieces(whole(), None),
            ..put("")
        };
        // The bytes of a copy, which its store breaks off.
        let unread = |kind: StoreErrorKind| {
            let pieces = stream::iter(whole().into_iter().map(|piece| Ok(Frame::data(piece))));
            let body = StreamBody::new(pieces.chain(stream::iter([Err(StoreError::from(kind))])));
            Put {
                body: Upload::new(body),
                ..put("")
            }
        };
        for existing in [false, true] {
            let blob = blob(
                &format!("bodies-{name}"),
                if existing { "existing" } else { "absent" },
            );
            if existing {
                subject.write(&blob, "before").await;
            }
            let before = subject.read(&blob).await;
            for (put, kind) in [
                (broken(), StoreErrorKind::Interrupted),
                (
                    unread(StoreErrorKind::Unavailable),
                    StoreErrorKind::Unavailable,
                ),
                (
                    unread(StoreErrorKind::NotFound),
                    StoreErrorKind::Unavailable,
                ),
                (
                    unread(StoreErrorKind::Unreadable),
                    StoreErrorKind::Unreadable,
                ),
                (
                    Put {
                        length: Some(length + 1),
                        ..intact()
                    },
                    StoreErrorKind::LengthMismatch,
                ),
                (
                    Put {
                        length: Some(length - 1),
                        ..intact()
                    },
                    StoreErrorKind::LengthMismatch,
                ),
                (
                    Put {
                        limit: length - 1,
                        ..intact()
                    },
                    StoreErrorKind::TooLarge { limit: length - 1 },
                ),
                (
                    Put {
                        digest: Some(ContentHash::of(b"x")),
                        ..intact()
                    },
                    StoreErrorKind::DigestMismatch,
                ),
            ] {
                let error = subject.store.put(&blob, put).await.expect_err(name);
                assert_eq!(error.kind(), &kind, "{name}: {error}");
                assert_eq!(subject.read(&blob).await, before, "{name}: {kind:?}");
            }
            let kept = subject
                .store
                .put(
                    &blob,
                    Put {
                        length: Some(length),
                        limit: length,
                        ..intact()
                    },
                )
                .await
                .unwrap();
            assert_eq!(kept.created, !existing);
        }
    }
}

async fn a_writer_that_disconnects_changes_nothing(subject: &Subject) {
    let blob = blob("bodies", "left");
    subject.write(&blob, "before").await;
    for sent in [pattern(100), pattern(LARGE)] {
        let (tell, told) = tokio::sync::oneshot::channel();
        let frames =
            stream::iter(chunks(&sent, 100_000)).map(|chunk| Ok::<_, BoxError>(Frame::data(chunk)));
        let frames = frames.chain(stream::once(async move {
            let _ = tell.send(());
            std::future::pending().await
        }));
        let endless = Put {
            body: Upload::new(StreamBody::new(frames)),
            ..put("")
        };
        tokio::select! {
            result = subject.store.put(&blob, endless) => panic!("the body has not ended: {result:?}"),
            told = told => told.expect("the body was read"),
        }
        assert_eq!(subject.read(&blob).await.unwrap().1, "before");
    }
    assert!(!subject.write(&blob, "after").await.created);
}
