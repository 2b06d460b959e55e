//! Verification finds every damaged body, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{BlobStore, Delete, Put, Reading, Upload};

use crate::{Damage, Finding, IndexedStore, OpenError, OpenErrorKind, Verification};

/// Size of a body that is stored in a file.
const LONG: usize = 60_000;
/// Number of blobs in the index whose bits are flipped, and greatest number of these bits.
const SHORT: usize = 30;
const FLIPS: usize = 60;

fn path(name: &str) -> BlobPath {
    BlobPath::parse(&format!("/docs/{name}")).expect("valid")
}

/// Returns a folder with long and short bodies, an overwritten one, a deleted one, and a deleted container.
async fn folder(long: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let store = IndexedStore::open(folder.path()).await.expect("it opens");
    let put = async |path: &BlobPath, text: String| {
        store
            .put(path, Put::new(Upload::new(Full::<Bytes>::from(text))))
            .await
            .expect("written");
    };
    for number in 0..long {
        put(&path(&format!("long/{number}")), format!("{number:LONG$}")).await;
    }
    put(&path("short"), "short".to_owned()).await;
    put(&path("long/0"), format!("{:LONG$}", "another version")).await;
    put(&path("deleted"), format!("{:LONG$}", "deleted")).await;
    store
        .delete(&path("deleted"), Delete::default())
        .await
        .expect("deleted");
    let other = ContainerName::new("other").expect("valid");
    store
        .create_container(&other, BlobHeaders::default())
        .await
        .expect("created");
    put(
        &BlobPath::parse("/other/blob").expect("valid"),
        "x".repeat(LONG),
    )
    .await;
    store
        .delete_container(&other, Delete::default())
        .await
        .expect("deleted");
    drop(store);
    // The folder stays locked until background work has ended.
    drop(
        once_free(|| Verification::open(folder.path()))
            .await
            .expect("it opens"),
    );
    folder
}

async fn findings(mut verification: Verification) -> Vec<Finding> {
    let mut all = Vec::new();
    while let Some(found) = verification.step().await.expect("the index can be read") {
        all.extend(found);
    }
    all.extend(
        verification
            .superfluous()
            .await
            .expect("the folder can be read"),
    );
    all
}

async fn verify(folder: &Path) -> Vec<Finding> {
    findings(Verification::open(folder).await.expect("it opens")).await
}

/// Returns the files of bodies, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(folder.join("bodies")).expect("a folder");
    let shards = shards.map(|shard| shard.expect("an entry").path());
    let files: BTreeSet<_> = shards
        .flat_map(|shard| fs::read_dir(shard).expect("a folder"))
        .map(|file| file.expect("an entry").path())
        .collect();
    files.into_iter().collect()
}

fn flip(file: &Path, position: usize) {
    let mut bytes = fs::read(file).expect("readable");
    bytes[position] ^= 1;
    fs::write(file, bytes).expect("writable");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intact_folder_has_no_findings() {
    let folder = folder(20).await;
    let verification = Verification::open(folder.path()).await.expect("it opens");
    let (total, progress) = (verification.total(), verification.progress());
    assert!(total.bodies >= 21, "{total:?}");
    assert!(findings(verification).await.is_empty());
    assert_eq!(
        (progress.bodies(), progress.bytes()),
        (total.bodies, total.bytes)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_flipped_cut_missing_and_superfluous_body_is_found() {
    let folder = folder(40).await;
    let files = files(folder.path());
    flip(&files[0], 0);
    flip(&files[1], LONG - 1);
    fs::OpenOptions::new()
        .write(true)
        .open(&files[2])
        .and_then(|file| file.set_len(10))
        .expect("writable");
    fs::remove_file(&files[3]).expect("removed");
    let copy = files[4].with_file_name(format!("{}-{:016x}", "a".repeat(64), 7));
    fs::copy(&files[4], &copy).expect("copied");
    fs::create_dir(files[5].with_extension("not-a-body")).expect("created");

    let found = verify(folder.path()).await;
    let of = |kind: fn(&Damage) -> bool| -> BTreeSet<&Path> {
        let of_kind = found.iter().filter(|found| kind(&found.damage));
        of_kind
            .map(|found| found.file.as_deref().expect("in a file"))
            .collect()
    };
    assert_eq!(
        of(|damage| matches!(damage, Damage::Changed)),
        files[..3].iter().map(PathBuf::as_path).collect()
    );
    assert_eq!(
        of(|damage| matches!(damage, Damage::Missing)),
        BTreeSet::from([files[3].as_path()])
    );
    assert_eq!(
        of(|damage| matches!(damage, Damage::Superfluous)),
        BTreeSet::from([copy.as_path()])
    );
    assert_eq!(found.len(), 5, "{found:?}");
    let named = |found: &Finding| {
        found
            .blob
            .as_ref()
            .is_some_and(|blob| blob.starts_with("docs/long/"))
    };
    assert_eq!(found.iter().filter(|found| named(found)).count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_reads_a_part_and_a_run_continues_after_its_last_step() {
    let folder = folder(200).await;
    let all = Verification::open(folder.path())
        .await
        .expect("it opens")
        .total()
        .bodies;
    let half = Verification::open(folder.path())
        .await
        .expect("it opens")
        .sample(0.5);
    let progress = half.progress();
    assert!(findings(half).await.is_empty());
    assert!(
        (all / 5..all * 4 / 5).contains(&progress.bodies()),
        "{} of {all}",
        progress.bodies()
    );

    let mut stopped = Verification::open(folder.path()).await.expect("it opens");
    stopped.progress().stop();
    assert!(
        stopped
            .step()
            .await
            .expect("the index can be read")
            .is_none()
    );
    assert_eq!(stopped.position(), None);
    drop(stopped);

    let mut first = Verification::open(folder.path()).await.expect("it opens");
    first
        .step()
        .await
        .expect("the index can be read")
        .expect("there are bodies");
    let position = first.position().expect("after a step").to_owned();
    drop(first);
    let rest = Verification::open(folder.path())
        .await
        .expect("it opens")
        .resume(&position);
    let progress = rest.progress();
    assert!(findings(rest).await.is_empty());
    assert_eq!(progress.bodies(), 0, "a step covers a thousand bodies");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_use_or_without_a_store_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = Verification::open(folder.path())
        .await
        .expect_err("there is no store");
    assert_eq!(error.kind(), OpenErrorKind::Missing);
    assert!(!folder.path().join("bodies").exists(), "it created a store");
    let _store = IndexedStore::open(folder.path()).await.expect("it opens");
    let error = Verification::open(folder.path())
        .await
        .expect_err("the store has it open");
    assert_eq!(error.kind(), OpenErrorKind::InUse);
}

/// Opens a folder once its previous user has closed it, which happens in the background.
async fn once_free<T, F: Future<Output = Result<T, OpenError>>>(
    mut open: impl FnMut() -> F,
) -> Result<T, OpenError> {
    let opened = async {
        loop {
            match open().await {
                Err(error) if error.kind() == OpenErrorKind::InUse => {
                    tokio::task::yield_now().await;
                }
                opened => break opened,
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(5), opened)
        .await
        .expect("the folder is closed within five minutes")
}

/// Returns tag and bytes of all short blobs, or an error of one.
async fn served(folder: &Path) -> Result<Vec<Option<(String, Bytes)>>, String> {
    let store = once_free(|| IndexedStore::open(folder))
        .await
        .map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for number in 0..SHORT {
        let opened = store
            .open(&path(&number.to_string()), Reading::WHOLE)
            .await
            .map_err(|error| error.to_string())?;
        let Some(mut opened) = opened else {
            all.push(None);
            continue;
        };
        let body = opened
            .source
            .read(None)
            .await
            .map_err(|error| error.to_string())?;
        let bytes = body
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        all.push(Some((opened.info.tag.expect("a tag").to_string(), bytes)));
    }
    Ok(all)
}

/// Without the checksums of the pages, a flipped bit changes a tag, or hides a blob. An error of a later read finds it, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_index_is_found_or_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = IndexedStore::open(folder.path()).await.expect("it opens");
    for number in 0..SHORT {
        let text = format!("{number:500}");
        store
            .put(
                &path(&number.to_string()),
                Put::new(Upload::new(Full::<Bytes>::from(text))),
            )
            .await
            .expect("written");
    }
    drop(store);
    let before = served(folder.path()).await.expect("it is intact");
    let index = folder.path().join("index.redb");
    drop(
        once_free(|| Verification::open(folder.path()))
            .await
            .expect("it opens"),
    );
    let intact = fs::read(&index).expect("readable");
    // In the keys, which nothing else covers. Some of them belong to earlier commits.
    let places = intact
        .windows(7)
        .enumerate()
        .filter(|(_, text)| *text == b"b/docs/")
        .map(|(place, _)| place + 3);
    let places: Vec<usize> = places.collect();
    let mut found = 0;
    for place in places.iter().step_by(places.len().div_ceil(FLIPS)) {
        fs::write(&index, &intact).expect("writable");
        flip(&index, *place);
        let is_found = match once_free(|| Verification::open(folder.path())).await {
            Ok(mut verification) => match verification.step().await {
                Ok(found) => {
                    found.is_some_and(|found| found.iter().any(|found| found.damage.is_loss()))
                }
                Err(_) => true,
            },
            Err(_) => true,
        };
        if is_found {
            found += 1;
            continue;
        }
        match served(folder.path()).await {
            Ok(after) => assert_eq!(after, before, "byte {place}"),
            Err(_) => found += 1,
        }
    }
    assert!(found > 0, "none of {} flipped bits is found", places.len());
}

#[tokio::test]
async fn a_store_of_short_bodies_without_its_index_does_not_start_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = IndexedStore::open(folder.path()).await.expect("it opens");
    store
        .put(
            &path("short"),
            Put::new(Upload::new(Full::<Bytes>::from("short"))),
        )
        .await
        .expect("written");
    drop(store);
    fs::remove_file(folder.path().join("index.redb")).expect("removed");
    let error = once_free(|| IndexedStore::open(folder.path()))
        .await
        .expect_err("it starts empty");
    assert_eq!(error.kind(), OpenErrorKind::Unreadable);
    assert!(
        error.to_string().contains("Restore it from a backup"),
        "{error}"
    );
}
