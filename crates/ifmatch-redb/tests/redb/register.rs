//! The redb register: the conformance suite and opening.

use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_redb::{OpenErrorKind, RedbRegister};
use ifmatch_register::{
    Key, Register, Scan, Swap,
    conformance::{self, RaceSize},
};

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
        let (key, record) = (Key::new(name.as_str()).unwrap(), Record::forgotten(Revision::new(1)));
        assert_eq!(register.compare_and_swap(&key, Revision::NONE, Some(&record)).await.unwrap(), Swap::Done);
    }
    for start in [0_usize, 1, 30] {
        let after = start.checked_sub(1).map(|at| names[at].as_str());
        for limit in [1, 15, 16, 17, 39, 40, 41, 1000] {
            let page = register.scan(&Scan { prefix: "a/", after, limit }).await.unwrap();
            let page: Vec<&str> = page.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!(page, names[start..names.len().min(start + limit)], "{limit} after {after:?}");
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
    assert_eq!(std::fs::read_to_string(&text).unwrap(), content, "the file is left alone");
}
