//! Appends lengthen a file, and no version gets the bytes of another: beside readers, copies, snapshots, leftovers and
//! swaps whose responses get lost.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::join_all;
use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::{blob, pattern, put};
use ifmatch_blob::headers::{Append, BlobHeaders};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{AppendBlock, Delete, Put, Reading, StoreErrorKind};
use ifmatch_blob::test_util::reopen;
use ifmatch_blob_indexed::{Finding, IndexedStore, Verification};
use ifmatch_register::{Driver, MemoryRegister};

use crate::support::{bytes, files, read};
use crate::unreliable::{Dice, Unreliable};

/// Length of the first block: in a file.
const LENGTH: usize = 200_000;

fn log() -> BlobPath {
    blob("c", "log")
}

fn inodes(folder: &Path) -> BTreeSet<u64> {
    files(folder)
        .iter()
        .map(|file| file.metadata().unwrap().ino())
        .collect()
}

async fn create(store: &IndexedStore) {
    let headers = BlobHeaders {
        append: Some(Append::default()),
        ..BlobHeaders::default()
    };
    store.put(&log(), Put { headers, ..put("") }).await.unwrap();
}

async fn append_to(store: &IndexedStore, blob: &BlobPath, block: impl Into<Bytes>) {
    store
        .append(blob, AppendBlock::new(block.into()))
        .await
        .unwrap();
}

async fn append(store: &IndexedStore, block: impl Into<Bytes>) {
    append_to(store, &log(), block).await;
}

async fn fixture() -> (IndexedStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = IndexedStore::open(folder.path()).await.unwrap();
    create(&store).await;
    append(&store, pattern(LENGTH)).await;
    (store, folder)
}

fn with(ends: &[&str]) -> Bytes {
    [&pattern(LENGTH)[..], ends.concat().as_bytes()]
        .concat()
        .into()
}

/// Returns what a verification of the closed folder finds.
async fn verify(folder: &Path) -> Vec<Finding> {
    let mut verification = reopen(async || Verification::open(folder).await).await;
    let mut findings = Vec::new();
    while let Some(found) = verification.step().await.unwrap() {
        findings.extend(found);
    }
    findings.extend(verification.superfluous().await.unwrap());
    findings
}

#[tokio::test]
async fn an_append_lengthens_the_file_of_the_version() {
    let (store, folder) = fixture().await;
    let first = inodes(folder.path());
    append(&store, "one").await;
    drop(store);
    let store = reopen(async || IndexedStore::open(folder.path()).await).await;
    append(&store, "two").await;
    assert_eq!(read(&store, &log()).await, with(&["one", "two"]));
    assert_eq!(inodes(folder.path()), first);
    drop(store);
    assert!(verify(folder.path()).await.is_empty());
}

#[tokio::test]
async fn a_reader_keeps_the_version_that_it_opened() {
    let (store, _folder) = fixture().await;
    let mut opened = store.open(&log(), Reading::WHOLE).await.unwrap().unwrap();
    append(&store, "one").await;
    assert_eq!(bytes(&mut opened).await, pattern(LENGTH));
    // A short file is read at once, and remembered under its name.
    store.delete(&log(), Delete::default()).await.unwrap();
    create(&store).await;
    for length in 1..4 {
        append(&store, pattern(5_000)).await;
        assert_eq!(read(&store, &log()).await.len(), 5_000 * length);
        assert_eq!(read(&store, &log()).await.len(), 5_000 * length);
    }
}

/// A crash, a failed write, or a swap that may still take place has left bytes at the end.
#[tokio::test]
async fn bytes_beyond_the_recorded_length_are_neither_served_nor_overwritten() {
    let (store, folder) = fixture().await;
    let (file, first) = (files(folder.path()).remove(0), inodes(folder.path()));
    let mut reader = std::fs::File::open(&file).unwrap();
    OpenOptions::new()
        .append(true)
        .open(&file)
        .unwrap()
        .write_all(b"of nobody")
        .unwrap();
    assert_eq!(read(&store, &log()).await, pattern(LENGTH));
    drop(store);
    assert!(verify(folder.path()).await.is_empty());

    let store = reopen(async || IndexedStore::open(folder.path()).await).await;
    append(&store, "one").await;
    append(&store, "two").await;
    assert_eq!(read(&store, &log()).await, with(&["one", "two"]));
    let second = inodes(folder.path());
    assert!(
        second.len() == 1 && second.is_disjoint(&first),
        "the body was copied once"
    );
    let mut old = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut old).unwrap();
    assert_eq!(old, with(&["of nobody"]));
}

/// A copy is a second name of the file: the appends of both are separate.
#[tokio::test]
async fn a_blob_and_its_copy_grow_apart() {
    for first in ["log", "copy"] {
        let (store, folder) = fixture().await;
        let copy = blob("c", "copy");
        let opened = store.open(&log(), Reading::WHOLE).await.unwrap().unwrap();
        store
            .put(&copy, Put::copying(&log(), opened).await.unwrap())
            .await
            .unwrap();
        assert_eq!(
            (files(folder.path()).len(), inodes(folder.path()).len()),
            (2, 1)
        );
        let (one, other) = if first == "log" {
            (log(), copy)
        } else {
            (copy, log())
        };
        append_to(&store, &one, "one").await;
        let mut opened = store.open(&one, Reading::WHOLE).await.unwrap().unwrap();
        append_to(&store, &other, "other").await;
        append_to(&store, &one, "two").await;
        append_to(&store, &other, "more").await;
        assert_eq!(read(&store, &one).await, with(&["one", "two"]));
        assert_eq!(read(&store, &other).await, with(&["other", "more"]));
        assert_eq!(bytes(&mut opened).await, with(&["one"]));
        drop((store, opened));
        assert!(verify(folder.path()).await.is_empty());
    }
}

/// The snapshot is a data folder of its own, whose files are those of the store.
#[tokio::test]
async fn a_store_and_its_snapshot_grow_apart() {
    let (store, folder) = fixture().await;
    append(&store, "one").await;
    let snapshot = store.snapshot().await.unwrap().folder;
    append(&store, "two").await;
    // Both could otherwise append to one file at the same time.
    assert!(inodes(folder.path()).is_disjoint(&inodes(&snapshot)));
    assert!(verify(&snapshot).await.is_empty());
    let copy = IndexedStore::open(&snapshot).await.unwrap();
    assert_eq!(read(&copy, &log()).await, with(&["one"]));
    append(&copy, "of the snapshot").await;
    append(&store, "three").await;
    assert_eq!(read(&store, &log()).await, with(&["one", "two", "three"]));
    assert_eq!(read(&copy, &log()).await, with(&["one", "of the snapshot"]));
    drop((store, copy));
    assert!(verify(folder.path()).await.is_empty());
}

/// Writes, deletions and appends at one key, in any order, which form groups of all kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_all_kinds_at_one_key_mix_no_bytes() {
    let (store, folder) = fixture().await;
    for round in 0..20 {
        let changes = (0..24).map(|at| {
            let (store, kind) = (store.clone(), (round * 7 + at * at) % 9);
            tokio::spawn(async move {
                let headers = BlobHeaders {
                    append: Some(Append::default()),
                    ..BlobHeaders::default()
                };
                match kind {
                    0 => drop(store.put(&log(), Put { headers, ..put("") }).await.unwrap()),
                    1 => drop(
                        store
                            .put(
                                &log(),
                                Put {
                                    headers,
                                    ..put(pattern(9_000))
                                },
                            )
                            .await
                            .unwrap(),
                    ),
                    2 => drop(store.delete(&log(), Delete::default()).await),
                    3 => drop(store.append(&log(), AppendBlock::new("short".into())).await),
                    _ => drop(store.append(&log(), AppendBlock::new(pattern(3_000))).await),
                }
                if let Some(mut opened) = store.open(&log(), Reading::WHOLE).await.unwrap() {
                    bytes(&mut opened).await;
                }
            })
        });
        for change in changes.collect::<Vec<_>>() {
            change.await.unwrap();
        }
        assert!(
            files(folder.path()).len() <= 1,
            "one blob has at most one file"
        );
        assert_eq!(
            std::fs::read_dir(folder.path().join("tmp"))
                .unwrap()
                .count(),
            0
        );
    }
    drop(store);
    assert!(verify(folder.path()).await.is_empty());
}

const CLIENTS: u64 = 6;
const BLOCKS: u64 = 40;

/// Responses of swaps get lost, and swaps arrive late. Acknowledged blocks are there once, at their offsets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreliable_register_loses_and_repeats_no_block() {
    for seed in 1..=4 {
        let folder = tempfile::tempdir().unwrap();
        let (records, dice) = (
            Arc::new(MemoryRegister::unbounded()),
            Arc::new(Dice::new(seed)),
        );
        let store = IndexedStore::with_driver(folder.path(), Driver::new(Arc::clone(&records)))
            .await
            .unwrap();
        create(&store).await;
        drop(store);
        let register = Unreliable {
            records: Arc::clone(&records),
            dice,
            late: Arc::default(),
        };
        let open =
            async || IndexedStore::with_driver(folder.path(), Driver::new(register.clone())).await;
        let store = reopen(open).await;
        let (acknowledged, refused) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(Mutex::new(Vec::new())),
        );
        let clients = (1..=CLIENTS).map(|name| {
            let (store, acknowledged, refused) = (
                store.clone(),
                Arc::clone(&acknowledged),
                Arc::clone(&refused),
            );
            let dice = Dice::new(seed << 8 | name);
            tokio::spawn(async move {
                for number in 0..BLOCKS {
                    let length = usize::try_from(100 + dice.roll(900)).unwrap();
                    let block = format!("{:.<length$};", format!("{name}/{number}"));
                    match store
                        .append(&log(), AppendBlock::new(block.clone().into()))
                        .await
                    {
                        Ok(appended) => acknowledged.lock().unwrap().push((appended.offset, block)),
                        Err(error) if *error.kind() == StoreErrorKind::OutcomeUnknown => {}
                        Err(error) => {
                            assert_eq!(*error.kind(), StoreErrorKind::Unavailable, "{error}");
                            refused.lock().unwrap().push(block);
                        }
                    }
                    if let Ok(Some(mut opened)) = store.open(&log(), Reading::WHOLE).await {
                        bytes(&mut opened).await;
                    }
                }
            })
        });
        for client in join_all(clients).await {
            client.unwrap();
        }
        let mut late = std::mem::take(&mut *register.late.lock().unwrap());
        while late.join_next().await.is_some() {}
        drop(store);
        let open = async || {
            IndexedStore::with_driver(folder.path(), Driver::new(Arc::clone(&records))).await
        };
        let store = reopen(open).await;
        let text = String::from_utf8(read(&store, &log()).await.to_vec()).unwrap();
        let (acknowledged, refused) = (acknowledged.lock().unwrap(), refused.lock().unwrap());
        assert!(
            acknowledged.len() > 50,
            "seed {seed}: the register lets some appends through"
        );
        for (offset, block) in acknowledged.iter() {
            let offset = usize::try_from(*offset).unwrap();
            assert!(
                text[offset..].starts_with(block),
                "seed {seed}: {block} isn't at {offset}"
            );
        }
        let blocks: Vec<&str> = text.split_inclusive(';').collect();
        let once: BTreeSet<&str> = blocks.iter().copied().collect();
        assert_eq!(
            once.len(),
            blocks.len(),
            "seed {seed}: a block is there twice"
        );
        assert!(
            refused.iter().all(|block| !once.contains(block.as_str())),
            "seed {seed}: a refused block is there"
        );
    }
}
