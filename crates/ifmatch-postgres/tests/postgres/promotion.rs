//! A standby that lacks acknowledged swaps takes over.

use std::time::Duration;

use http::Method;
use http::header::{HeaderMap, IF_MATCH};
use ifmatch_core::command::{Authority, Begin, Command, Content, Outcome, Refusal, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, State};
use ifmatch_postgres::PostgresRegister;
use ifmatch_register::{Driver, DriverError, Key};
use ifmatch_runtime::nonce;
use ifmatch_testbed::{Server, postgres, within};

use crate::start;

const TTL: Duration = Duration::from_mins(10);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

async fn connect(url: &str) -> Driver {
    Driver::new(PostgresRegister::connect(url).await.expect("a server runs"))
}

/// Writes content without conditions, and returns the record.
async fn write(driver: &Driver, name: &str, bytes: &[u8]) -> Record {
    let content = Content::Hashed {
        hash: ContentHash::of(bytes),
        payload: bytes.to_vec().into(),
    };
    let write = Write::new(
        &Method::PUT,
        &Preconditions::NONE,
        content,
        nonce().unwrap(),
    );
    let applied = driver
        .apply(&key(name), &Command::Write(write))
        .await
        .unwrap();
    assert!(
        matches!(applied.outcome, Outcome::Written(_)),
        "{:?}",
        applied.outcome
    );
    applied.after
}

/// Requests a permit, if the current version is a record's.
async fn begin(driver: &Driver, name: &str, version: Option<&Record>) -> Outcome {
    let mut headers = HeaderMap::new();
    if let Some(version) =
        version.and_then(|record| record.state(record.revision().timestamp()).version())
    {
        headers.insert(IF_MATCH, version.tags()[0].to_header());
    }
    let conditions = Preconditions::from_headers(&headers);
    let begin = Begin::new(&Method::PUT, &conditions, nonce().unwrap(), TTL)
        .with_authority(Authority::Register);
    driver
        .apply(&key(name), &Command::Begin(begin))
        .await
        .unwrap()
        .outcome
}

/// Waits until the standby shows all changes of the primary.
async fn until_replicated(primary: &Server, standby: &Server) {
    let position = postgres::sql(primary, "SELECT pg_current_wal_lsn()");
    let has_replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'");
    within("the standby has all changes", async {
        while postgres::sql(standby, &has_replayed) != "t" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Loads a record as soon as the register is available.
async fn load(driver: &Driver, name: &str) -> Record {
    within("the register is available", async {
        loop {
            match driver.load(&key(name)).await {
                Ok(record) => return record,
                Err(DriverError::Register(_)) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

/// A client has read the second version of a page, and another one holds the first. After the promotion, the register shows
/// the first version again: a write that expects it would overwrite the second, and a 304 would confirm it.
#[tokio::test(flavor = "multi_thread")]
async fn versions_from_before_a_promotion_with_loss_are_unknown() {
    let mut primary = start().await;
    let mut standby = postgres::start_standby(primary.address(), &[]).await;
    let url = format!(
        "postgres://postgres@{},{}/postgres",
        primary.address(),
        standby.address()
    );
    let (driver, index) = (connect(&url).await, connect(&url).await.assume_absent());
    let first = write(&driver, "page", b"first").await;
    let permit = begin(&driver, "busy", None).await;
    assert!(matches!(permit, Outcome::Granted(_)), "{permit:?}");
    until_replicated(&primary, &standby).await;
    standby.kill();
    let second = write(&driver, "page", b"second").await;
    let new = write(&driver, "new", b"new").await;
    primary.kill();
    standby.restart().await;
    postgres::promote(&standby);

    let found = load(&driver, "page").await;
    assert_eq!(
        found.state(driver.now()),
        &State::Unknown,
        "it may be older than an acknowledged write"
    );
    assert!(
        found.revision() > second.revision(),
        "nothing derived from a lost revision is valid"
    );
    assert!(
        load(&driver, "new").await.revision() > new.revision(),
        "its creation was lost"
    );
    let refused = begin(&driver, "page", Some(&first)).await;
    assert!(
        matches!(refused, Outcome::Refused(Refusal::ProbeFirst)),
        "{refused:?}"
    );
    let busy = begin(&driver, "busy", None).await;
    assert!(
        matches!(busy, Outcome::Refused(Refusal::InFlight { .. })),
        "its writer may still run: {busy:?}"
    );
    let indexed = load(&index, "page").await;
    assert_eq!(
        indexed.settled(index.now()),
        first.settled(index.now()),
        "an index has no other authority"
    );

    // The next write is a version that all processes know.
    let third = write(&driver, "page", b"third").await;
    assert!(third.revision() > found.revision());
    let other = connect(&url).await;
    assert_eq!(load(&other, "page").await, third);
    let granted = begin(&other, "page", Some(&third)).await;
    assert!(matches!(granted, Outcome::Granted(_)), "{granted:?}");
    for driver in [&driver, &index, &other] {
        assert_eq!(driver.register().engine().epoch.number, 1);
    }
}

/// A client has read the second version of a page, and another one holds the first, which a restored backup shows again. The
/// tables of a restored `pg_dump` are new ones. Those of a base backup are the same.
#[tokio::test(flavor = "multi_thread")]
async fn versions_from_before_a_restore_are_unknown() {
    let dump = "DROP TABLE ifmatch_records, ifmatch_epoch; ALTER TABLE records RENAME TO ifmatch_records;
        ALTER TABLE epoch RENAME TO ifmatch_epoch; ALTER TABLE ifmatch_records ADD PRIMARY KEY (key)";
    let base_backup = "TRUNCATE ifmatch_records; INSERT INTO ifmatch_records SELECT * FROM records";
    for (restore, is_noticed) in [(dump, true), (base_backup, false)] {
        let server = start().await;
        let driver = connect(&server.url()).await;
        let first = write(&driver, "page", b"first").await;
        postgres::sql(
            &server,
            "CREATE TABLE records AS TABLE ifmatch_records; CREATE TABLE epoch AS TABLE ifmatch_epoch",
        );
        let second = write(&driver, "page", b"second").await;
        drop(driver);
        postgres::sql(&server, restore);
        if !is_noticed {
            assert_eq!(ifmatch_postgres::restored(&server.url()).await.unwrap(), 1);
        }
        let driver = connect(&server.url()).await;
        assert_eq!(driver.register().engine().epoch.number, 1);
        assert!(load(&driver, "page").await.revision() > second.revision());
        let refused = begin(&driver, "page", Some(&first)).await;
        assert!(
            matches!(refused, Outcome::Refused(Refusal::ProbeFirst)),
            "{refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_forgets_nothing() {
    let mut server = start().await;
    let driver = connect(&server.url()).await;
    let written = write(&driver, "page", b"first").await;
    server.restart().await;
    assert_eq!(load(&driver, "page").await, written);
    assert_eq!(driver.register().engine().epoch.number, 0);
}

/// The former primary runs again, wasn't fenced, and comes first in the URL. It lacks the swaps since the promotion, and
/// acknowledges others.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_is_not_used_again() {
    let mut primary = start().await;
    let mut standby = postgres::start_standby(primary.address(), &[]).await;
    let url = format!(
        "postgres://postgres@{},{}/postgres",
        primary.address(),
        standby.address()
    );
    let driver = connect(&url).await;
    write(&driver, "page", b"first").await;
    until_replicated(&primary, &standby).await;
    primary.kill();
    postgres::promote(&standby);
    load(&driver, "page").await;
    let second = write(&driver, "page", b"second").await;
    primary.restart().await;
    // All connections look for the primary again.
    standby.restart().await;
    for _ in 0..20 {
        assert_eq!(load(&driver, "page").await, second);
        end_connections(&standby);
    }
}

/// The former primary wasn't stopped: both servers accept writes. A process that starts now has seen neither before.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_finds_the_present_primary_beside_a_former_one() {
    let primary = start().await;
    let standby = postgres::start_standby(primary.address(), &[]).await;
    let url = format!(
        "postgres://postgres@{},{}/postgres",
        primary.address(),
        standby.address()
    );
    let driver = connect(&url).await;
    write(&driver, "page", b"first").await;
    until_replicated(&primary, &standby).await;
    postgres::promote(&standby);
    let second = write(&connect(&standby.url()).await, "page", b"second").await;
    for _ in 0..10 {
        let started = connect(&url).await;
        assert_eq!(load(&started, "page").await, second);
        assert_eq!(started.register().engine().epoch.number, 1);
    }
}

/// Ends the connections of all clients.
fn end_connections(server: &Server) {
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ifmatch'";
    postgres::sql(server, end);
}
