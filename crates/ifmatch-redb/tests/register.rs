//! The redb register: the conformance suite, and how it opens.

use ifmatch_redb::{OpenErrorKind, RedbRegister};
use ifmatch_store::conformance::{self, Traits};

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let register = RedbRegister::open(folder.path().join("index.redb")).unwrap();
    conformance::run(register, Traits::default().with_race(8, 5)).await;
}

#[test]
fn a_second_opener_is_told_that_the_database_is_in_use() {
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
fn a_missing_folder_and_a_file_that_is_no_database_are_told_apart() {
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
