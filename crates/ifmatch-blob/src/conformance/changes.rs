//! Changes whose content the store computes: appends and updates.

use bytes::Bytes;
use futures_util::future::join_all;
use ifmatch_core::append::{AppendConditions, AppendFailure};

use super::{Subject, blob, if_match, kind, put, refusal};
use crate::headers::{Append, BlobHeaders};
use crate::name::BlobPath;
use crate::store::{
    AppendBlock, Appended, ContentChange, Delete, HeaderChange, Put, SetHeaders, StoreError,
    StoreErrorKind, Update, Updated,
};

pub(super) async fn check(subject: &Subject) {
    if subject.keeps_headers {
        appends_are_decided_on_the_current_version(subject).await;
        racing_appends_all_take_effect(subject).await;
    }
    updates_are_functions_of_the_content(subject).await;
    racing_updates_all_take_effect(subject).await;
}

fn failed(failure: AppendFailure) -> StoreErrorKind {
    StoreErrorKind::AppendFailed(failure)
}

impl Subject {
    async fn create_log(&self, blob: &BlobPath) {
        let headers = BlobHeaders {
            append: Some(Append::default()),
            ..BlobHeaders::default()
        };
        self.store
            .put(blob, Put { headers, ..put("") })
            .await
            .expect("written");
    }

    async fn append(
        &self,
        blob: &BlobPath,
        block: impl Into<Bytes>,
    ) -> Result<Appended, StoreError> {
        self.store
            .append(blob, AppendBlock::new(block.into()))
            .await
    }

    async fn bytes(&self, blob: &BlobPath) -> Bytes {
        self.read(blob).await.expect("there is a blob").1
    }
}

async fn appends_are_decided_on_the_current_version(subject: &Subject) {
    let log = blob("appends", "log");
    assert_eq!(
        kind(subject.append(&log, "x").await),
        StoreErrorKind::ContainerNotFound
    );
    subject.create_log(&log).await;
    assert_eq!(
        kind(subject.append(&blob("appends", "other"), "x").await),
        StoreErrorKind::NotFound
    );
    let first = subject.append(&log, "one,").await.unwrap();
    let second = subject.append(&log, "two,").await.unwrap();
    assert_eq!(
        [(first.offset, first.blocks), (second.offset, second.blocks)],
        [(0, 1), (4, 2)]
    );
    let at = |position| AppendBlock {
        conditions: AppendConditions {
            position: Some(position),
            max_size: Some(12),
        },
        ..AppendBlock::new("six,".into())
    };
    assert_eq!(
        kind(subject.store.append(&log, at(4)).await),
        failed(AppendFailure::Position)
    );
    let third = subject.store.append(&log, at(8)).await.unwrap();
    assert_eq!(
        kind(subject.store.append(&log, at(8)).await),
        failed(AppendFailure::Position),
        "a retry is told"
    );
    assert_eq!(
        kind(subject.store.append(&log, at(12)).await),
        failed(AppendFailure::MaxSize)
    );
    let stale = AppendBlock {
        preconditions: if_match(&first.written.tag.unwrap()),
        ..at(7)
    };
    assert_eq!(
        refusal(subject.store.append(&log, stale).await).1,
        third.written.tag,
        "conditions come first"
    );
    let full = AppendBlock {
        max_blocks: 3,
        ..AppendBlock::new("x".into())
    };
    assert_eq!(
        kind(subject.store.append(&log, full).await),
        failed(AppendFailure::BlockCount)
    );
    let too_large = AppendBlock {
        limit: 12,
        ..AppendBlock::new("x".into())
    };
    assert_eq!(
        kind(subject.store.append(&log, too_large).await),
        StoreErrorKind::TooLarge { limit: 12 }
    );
    assert_eq!(subject.bytes(&log).await, "one,two,six,");

    let seal = |position| {
        let conditions = AppendConditions {
            position,
            ..AppendConditions::default()
        };
        SetHeaders::new(HeaderChange::Seal(conditions))
    };
    assert_eq!(
        kind(subject.store.set_headers(&log, seal(Some(4))).await),
        failed(AppendFailure::Position)
    );
    subject
        .store
        .set_headers(&log, seal(Some(12)))
        .await
        .unwrap();
    assert_eq!(
        kind(subject.append(&log, "x").await),
        failed(AppendFailure::Sealed)
    );

    let page = blob("appends", "page");
    subject.write(&page, "text").await;
    assert_eq!(
        kind(subject.append(&page, "x").await),
        StoreErrorKind::OtherType
    );
    assert_eq!(
        kind(subject.store.set_headers(&page, seal(None)).await),
        StoreErrorKind::OtherType
    );
    assert_eq!(subject.bytes(&page).await, "text");
}

/// Length of a block in bytes.
const LENGTH: usize = 700;

/// Small blobs grow out of any special place, and each block is once in the content, at the offset that its response states.
async fn racing_appends_all_take_effect(subject: &Subject) {
    let log = blob("appends", "race");
    subject.create_log(&log).await;
    for round in 0..3 {
        let appends = (0..subject.writers).map(|writer| {
            let block = format!("{:-<LENGTH$}", format!("{round}/{writer}"));
            async move {
                (
                    block.clone(),
                    subject
                        .append(&blob("appends", "race"), block)
                        .await
                        .unwrap()
                        .offset,
                )
            }
        });
        let appended = join_all(appends).await;
        let bytes = subject.bytes(&log).await;
        assert_eq!(bytes.len(), (round + 1) * subject.writers * LENGTH);
        for (block, offset) in appended {
            let offset = usize::try_from(offset).unwrap();
            assert_eq!(
                bytes[offset..offset + LENGTH],
                *block.as_bytes(),
                "round {round}"
            );
        }
    }
    let (info, bytes) = subject.read(&log).await.expect("there is a blob");
    assert_eq!(
        info.hash,
        Some(ifmatch_core::digest::ContentHash::of(&bytes))
    );
}

fn number(bytes: &Bytes) -> u32 {
    std::str::from_utf8(bytes)
        .expect("text")
        .trim_end()
        .parse()
        .expect("a number")
}

/// Adds one. The content is as long as the store keeps in different places.
fn add_one(length: usize) -> Update {
    Update::new(move |current| {
        let next = current.map_or(0, |current| number(&current.bytes)) + 1;
        ContentChange::Replace(format!("{next: <length$}").into())
    })
}

async fn updates_are_functions_of_the_content(subject: &Subject) {
    let counter = blob("updates", "counter");
    for (at, length) in [1, 10_000, 1, 20_000].into_iter().enumerate() {
        let Updated::Replaced(written) = subject
            .store
            .update(&counter, add_one(length))
            .await
            .unwrap()
        else {
            panic!("it was kept")
        };
        let (info, bytes) = subject.read(&counter).await.expect("there is a blob");
        assert_eq!((number(&bytes) as usize, info.tag), (at + 1, written.tag));
    }
    let keep = Update::new(|_| ContentChange::Keep);
    let tag = subject.tag(&counter).await;
    assert_eq!(
        subject.store.update(&counter, keep).await.unwrap(),
        Updated::Kept
    );
    assert_eq!(subject.tag(&counter).await, tag);
    let delete = || Update::new(|_| ContentChange::Delete);
    assert_eq!(
        subject.store.update(&counter, delete()).await.unwrap(),
        Updated::Deleted
    );
    assert!(subject.head(&counter).await.is_none());
    assert_eq!(
        kind(subject.store.update(&counter, delete()).await),
        StoreErrorKind::NotFound
    );
    subject.write(&counter, "12345").await;
    let short = Update {
        limit: 4,
        ..add_one(1)
    };
    assert_eq!(
        kind(subject.store.update(&counter, short).await),
        StoreErrorKind::TooLarge { limit: 4 }
    );
}

async fn racing_updates_all_take_effect(subject: &Subject) {
    let counter = blob("updates", "race");
    let count = 3 * subject.writers;
    let updates = (0..count).map(|at| subject.store.update(&counter, add_one(1 + at % 3 * 3_000)));
    for updated in join_all(updates).await {
        assert!(matches!(updated.unwrap(), Updated::Replaced(_)));
    }
    assert_eq!(number(&subject.bytes(&counter).await) as usize, count);
    subject
        .store
        .delete(&counter, Delete::default())
        .await
        .unwrap();
}
