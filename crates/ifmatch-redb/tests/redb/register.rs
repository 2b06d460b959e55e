//! The register: conformance, opening, and damaged files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_redb::{Integrity, OpenErrorKind, RedbRegister};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Driver, Key, Register, Scan, Swap};

use crate::{get, set};

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let register = RedbRegister::open(folder.path().join("index.redb")).unwrap();
    conformance::run(register, RaceSize::new(8, 5)).await;
}

/// One process may have several handles, but not several databases.
#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let folder = tempfile::tempdir().unwrap();
    let register = Arc::new(RedbRegister::open(folder.path().join("index.redb")).unwrap());
    conformance::run_shared(async || Arc::clone(&register), RaceSize::new(8, 5)).await;
}

/// Short and long pages are read differently.
#[tokio::test]
async fn pages_of_any_length_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let register = RedbRegister::open(folder.path().join("index.redb")).unwrap();
    let names: Vec<String> = (0..40).map(|at| format!("a/{at:02}")).collect();
    for name in names.iter().chain([&"b".to_owned()]) {
        let (key, record) = (
            Key::new(name.as_str()).unwrap(),
            Record::forgotten(Revision::new(1)),
        );
        assert_eq!(
            register
                .compare_and_swap(&key, Revision::NONE, Some(&record))
                .await
                .unwrap(),
            Swap::Done
        );
    }
    for start in [0_usize, 1, 30] {
        let after = start.checked_sub(1).map(|at| names[at].as_str());
        for limit in [1, 15, 16, 17, 39, 40, 41, 1000] {
            let page = register
                .scan(&Scan {
                    prefix: "a/",
                    after,
                    limit,
                })
                .await
                .unwrap();
            let page: Vec<&str> = page.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!(
                page,
                names[start..names.len().min(start + limit)],
                "{limit} after {after:?}"
            );
        }
    }
}

#[test]
fn opening_a_database_twice_reports_that_it_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.redb");
    let _first = RedbRegister::open(&path).unwrap();
    let second = RedbRegister::open(&path).unwrap_err();
    assert_eq!(second.kind(), OpenErrorKind::InUse);
}

#[test]
fn a_closed_database_can_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.redb");
    drop(RedbRegister::open(&path).unwrap());
    RedbRegister::open(&path).unwrap();
}

#[test]
fn a_missing_folder_and_a_damaged_file_have_different_errors() {
    let folder = tempfile::tempdir().unwrap();
    let missing = RedbRegister::open(folder.path().join("missing/index.redb")).unwrap_err();
    assert_eq!(missing.kind(), OpenErrorKind::Denied);
    let text = folder.path().join("text");
    let content = "not a database ".repeat(1000);
    std::fs::write(&text, &content).unwrap();
    let damaged = RedbRegister::open(&text).unwrap_err();
    assert_eq!(damaged.kind(), OpenErrorKind::Damaged, "{damaged}");
    assert_eq!(
        std::fs::read_to_string(&text).unwrap(),
        content,
        "the file is left alone"
    );
}

const PAGE: usize = 4096;
/// Number of records that change before the last one, and value that it has in the end.
const OTHERS: u64 = 40;
const LAST: u64 = 20;

/// Returns the bytes of a database, as the end of its process leaves it, or after it was closed.
async fn database(is_closed: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.redb");
    let driver = Driver::new(RedbRegister::open(&path).unwrap()).assume_absent();
    for number in 0..OTHERS {
        set(&driver, &format!("other/{number}"), number)
            .await
            .unwrap();
    }
    for value in 1..=LAST {
        set(&driver, "last", value).await.unwrap();
    }
    if is_closed {
        drop(driver);
    }
    fs::read(path).unwrap()
}

fn written(folder: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join("index.redb");
    fs::write(&path, bytes).unwrap();
    path
}

/// The slot of the newest commit, in a header whose byte 9 names it.
fn newest_slot(database: &[u8]) -> usize {
    64 + 128 * usize::from(database[9] & 1)
}

#[tokio::test]
async fn a_database_whose_newest_commit_is_damaged_is_opened_only_on_request() {
    let database = database(false).await;
    for at in (0..128).step_by(3) {
        let folder = tempfile::tempdir().unwrap();
        let mut damaged = database.clone();
        damaged[newest_slot(&database) + at] ^= 1;
        let path = written(folder.path(), &damaged);
        let kind = RedbRegister::open(&path).unwrap_err().kind();
        if at == 0 {
            assert_eq!(kind, OpenErrorKind::Damaged, "the version of the format");
            continue;
        }
        assert_eq!(kind, OpenErrorKind::LostCommit, "byte {at} of the slot");
        assert_eq!(
            RedbRegister::integrity(&path).unwrap(),
            Integrity::LostCommit,
            "byte {at} of the slot"
        );
        assert_eq!(fs::read(&path).unwrap(), damaged, "it is left as it is");
        let driver = Driver::new(RedbRegister::open_rolled_back(&path).unwrap()).assume_absent();
        assert_eq!(get(&driver, "last").await.unwrap(), Some(LAST - 1));
        drop(driver);
        assert_eq!(
            RedbRegister::integrity(&path).unwrap(),
            Integrity::Intact,
            "it continues from there"
        );
        RedbRegister::open(&path).unwrap();
    }
}

/// A kill leaves a whole database, and a warning would make operators restore an older backup.
#[tokio::test]
async fn a_database_that_was_not_closed_is_intact() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &database(false).await);
    assert_eq!(RedbRegister::integrity(&path).unwrap(), Integrity::Intact);
    assert_eq!(
        get(
            &Driver::new(RedbRegister::open(&path).unwrap()).assume_absent(),
            "last"
        )
        .await
        .unwrap(),
        Some(LAST)
    );
}

/// redb discards the commit if a page of it is damaged, and one that wasn't closed may lack it after a loss of power.
#[tokio::test]
async fn an_older_record_is_never_returned_from_an_intact_database() {
    let (database, mut rolled_back) = (database(false).await, 0);
    for start in (0..database.len()).step_by(PAGE) {
        for at in [0, 5, PAGE / 2, PAGE - 1] {
            let folder = tempfile::tempdir().unwrap();
            let mut damaged = database.clone();
            damaged[start + at] ^= 4;
            let path = written(folder.path(), &damaged);
            let integrity = RedbRegister::integrity(&path).map_err(|error| error.kind());
            let Ok(register) = RedbRegister::open(&path) else {
                assert_ne!(
                    integrity,
                    Ok(Integrity::Intact),
                    "page at {start}, byte {at}"
                );
                continue;
            };
            let found = get(&Driver::new(register).assume_absent(), "last").await;
            rolled_back += u32::from(integrity == Ok(Integrity::RolledBack));
            if found.ok().flatten() != Some(LAST) {
                assert_ne!(
                    integrity,
                    Ok(Integrity::Intact),
                    "page at {start}, byte {at}"
                );
            }
        }
    }
    assert!(rolled_back > 0, "no byte was of the newest commit");
}

#[tokio::test]
async fn a_page_of_zeros_is_damage_and_no_panic() {
    let (database, mut damaged_pages) = (database(true).await, 0);
    for start in (PAGE..database.len())
        .step_by(PAGE)
        .filter(|start| database[*start..start + PAGE] != [0; PAGE])
    {
        let folder = tempfile::tempdir().unwrap();
        let mut damaged = database.clone();
        damaged[start..start + PAGE].fill(0);
        let path = written(folder.path(), &damaged);
        let integrity = RedbRegister::integrity(&path).unwrap();
        damaged_pages += u32::from(integrity == Integrity::Damaged);
        match RedbRegister::open(&path) {
            Err(error) => assert_eq!(
                error.kind(),
                OpenErrorKind::Damaged,
                "page at {start}: {error}"
            ),
            Ok(register) => {
                let found = get(&Driver::new(register).assume_absent(), "last").await;
                assert!(
                    found.is_err()
                        || integrity == Integrity::Damaged
                        || found.unwrap() == Some(LAST),
                    "{start}"
                );
            }
        }
    }
    assert!(damaged_pages > 0, "no page was in use");
}

/// A disk that was full leaves an incomplete commit, as a power loss may do. It was refused, so nothing is missing without it.
#[tokio::test]
async fn an_incomplete_commit_that_was_refused_is_no_damage() {
    let (database, mut rolled_back) = (database(false).await, 0);
    for start in (0..database.len()).step_by(PAGE) {
        let folder = tempfile::tempdir().unwrap();
        let mut damaged = database.clone();
        damaged[start + PAGE / 2] ^= 4;
        let path = written(folder.path(), &damaged);
        let Ok(Integrity::RolledBack | Integrity::LostCommit) = RedbRegister::integrity(&path)
        else {
            continue;
        };
        rolled_back += 1;
        let failed = folder.path().join("index.redb.failed");
        fs::write(&failed, "").unwrap();
        assert_eq!(
            RedbRegister::integrity(&path).unwrap(),
            Integrity::Intact,
            "page at {start}"
        );
        let driver = Driver::new(RedbRegister::open(&path).unwrap()).assume_absent();
        assert_eq!(
            get(&driver, "last").await.unwrap(),
            Some(LAST - 1),
            "page at {start}"
        );
        assert!(
            !failed.exists(),
            "it must not excuse the loss of a later commit"
        );
    }
    assert!(rolled_back > 0, "no byte was of the newest commit");
}

/// Otherwise, whoever looks a second time would not learn what the first one was told.
#[tokio::test]
async fn a_database_that_is_only_read_stays_as_it_was_found() {
    for is_closed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let found = database(is_closed).await;
        let path = written(folder.path(), &found);
        let driver = Driver::new(RedbRegister::open_read_only(&path).unwrap()).assume_absent();
        assert_eq!(get(&driver, "last").await.unwrap(), Some(LAST));
        assert!(
            set(&driver, "last", LAST + 1).await.is_err(),
            "it can't be changed"
        );
        assert_eq!(get(&driver, "last").await.unwrap(), Some(LAST));
        assert_eq!(
            RedbRegister::open(&path).unwrap_err().kind(),
            OpenErrorKind::InUse
        );
        drop(driver);
        assert_eq!(fs::read(&path).unwrap(), found);
        assert!(RedbRegister::open_read_only(folder.path().join("none")).is_err());
    }
}
