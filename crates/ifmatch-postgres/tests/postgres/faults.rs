//! Outages, locks, standbys and the server's time.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_postgres::PostgresRegister;
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Swap};
use ifmatch_runtime::nonce;
use ifmatch_testbed::within;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::{client, connect, start};

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn after(before: &Record) -> Record {
    let write = Write::new(
        &Method::PUT,
        &Preconditions::NONE,
        Content::Unknown,
        nonce().unwrap(),
    );
    before
        .apply(&Command::Write(write), before.revision().timestamp())
        .next
        .unwrap()
}

async fn create(register: &PostgresRegister, name: &str) -> Record {
    let record = after(&Record::absent());
    assert_eq!(
        register
            .compare_and_swap(&key(name), Revision::NONE, Some(&record))
            .await
            .unwrap(),
        Swap::Done
    );
    record
}

/// Swaps until one succeeds.
async fn create_soon(register: &PostgresRegister, name: &str) {
    let record = after(&Record::absent());
    loop {
        match register
            .compare_and_swap(&key(name), Revision::NONE, Some(&record))
            .await
        {
            Ok(Swap::Done) => return,
            // One without a response was done.
            Ok(Swap::Conflict(Some(found))) if found == record => return,
            Ok(other) => panic!("{other:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_ends_nothing() {
    let mut server = start().await;
    let register = connect(&server).await;
    let record = create(&register, "k").await;
    server.kill();
    let mut failures = 0;
    // More than the number of failures after which calls fail at once.
    while failures < 20 {
        let error = register
            .load(&key("k"))
            .await
            .expect_err("the server is gone");
        assert_eq!(error.kind(), RegisterErrorKind::Unavailable, "{error}");
        let swap = register
            .compare_and_swap(&key("k"), record.revision(), Some(&after(&record)))
            .await;
        failures += usize::from(
            swap.expect_err("the server is gone").kind() == RegisterErrorKind::Unavailable,
        );
    }
    server.restart().await;
    within("a swap succeeds again", create_soon(&register, "back")).await;
    let load = async {
        loop {
            match register.load(&key("k")).await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    assert_eq!(within("a load succeeds again", load).await, Some(record));
}

/// Another transaction holds the lock of one row. Its swap waits for a second and fails; the others of its batch succeed.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_blocks_no_other_swap() {
    let server = start().await;
    let register = Arc::new(connect(&server).await);
    let locked = create(&register, "locked").await;
    let mut others = Vec::new();
    for number in 0..50 {
        others.push((
            format!("other/{number}"),
            create(&register, &format!("other/{number}")).await,
        ));
    }
    let mut client = client(&server).await;
    let lock = client.transaction().await.unwrap();
    lock.execute(
        "SELECT FROM ifmatch_records WHERE key = 'locked' FOR UPDATE",
        &[],
    )
    .await
    .unwrap();
    let swap = |name: String, before: Record| {
        let register = Arc::clone(&register);
        tokio::spawn(async move {
            register
                .compare_and_swap(&key(&name), before.revision(), Some(&after(&before)))
                .await
        })
    };
    let blocked = swap("locked".to_owned(), locked.clone());
    let swaps: Vec<_> = others
        .into_iter()
        .map(|(name, before)| swap(name, before))
        .collect();
    for swap in swaps {
        assert_eq!(swap.await.unwrap().unwrap(), Swap::Done, "it is not locked");
    }
    let error = blocked.await.unwrap().expect_err("it is locked");
    assert_eq!(
        error.kind(),
        RegisterErrorKind::Unavailable,
        "nothing was changed: {error}"
    );
    assert_eq!(
        register.load(&key("locked")).await.unwrap(),
        Some(locked.clone()),
        "a load needs no lock"
    );
    lock.rollback().await.unwrap();
    assert_eq!(
        swap("locked".to_owned(), locked).await.unwrap().unwrap(),
        Swap::Done
    );
}

/// Makes the server wait for a standby that doesn't exist, and returns a swap that waits for it. The server's processes read
/// the setting some time after the call, so earlier swaps succeed.
async fn waiting_swap(
    register: &Arc<PostgresRegister>,
    client: &Client,
) -> JoinHandle<Result<Swap, RegisterError>> {
    client
        .batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
        .await
        .unwrap();
    client
        .batch_execute("SELECT pg_reload_conf()")
        .await
        .unwrap();
    for number in 0..10_000 {
        let register = Arc::clone(register);
        let swap = tokio::spawn(async move {
            let record = after(&Record::absent());
            register
                .compare_and_swap(&key(&number.to_string()), Revision::NONE, Some(&record))
                .await
        });
        while !swap.is_finished() {
            if waiting(client).await == 1 {
                return swap;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(swap.await.unwrap().unwrap(), Swap::Done, "it does not wait");
    }
    panic!("none of 10,000 swaps waits for the standby");
}

/// Returns the number of statements that wait for a synchronous standby.
async fn waiting(client: &Client) -> i64 {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    client.query_one(waiting, &[]).await.unwrap().get(0)
}

/// An operator cancels the statement that waits for a synchronous standby. The server then shows the change, which isn't
/// replicated, and warns.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_that_was_not_replicated_is_ambiguous() {
    let server = start().await;
    let register = Arc::new(connect(&server).await);
    let client = client(&server).await;
    let swap = waiting_swap(&register, &client).await;
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    client
        .query_one(cancel, &[])
        .await
        .expect("one statement waits");
    let error = swap.await.unwrap().expect_err("it is not replicated");
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous);
    assert!(error.to_string().contains("replicated"), "{error}");
}

/// The standby doesn't respond at all: the call ends within its time limit, and the server isn't asked to cancel.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_without_an_answer_is_ambiguous_and_not_cancelled() {
    let server = start().await;
    let register = Arc::new(connect(&server).await);
    let client = client(&server).await;
    let swap = waiting_swap(&register, &client).await;
    let error = swap.await.unwrap().expect_err("it has no answer");
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous);
    // A request to cancel would take effect some time after the response.
    for _ in 0..20 {
        assert_eq!(waiting(&client).await, 1, "the statement still waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The bounds of the time must contain the time that the server reports between the calls.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_the_servers() {
    let server = start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let client = client(&server).await;
    for _ in 0..20 {
        let before = [one.engine().time.unwrap(), other.engine().time.unwrap()];
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let micros = client
            .query_one(now, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            .cast_unsigned();
        let after = [one.engine().time.unwrap(), other.engine().time.unwrap()];
        for (before, after) in before.into_iter().zip(after) {
            assert!(
                before.earliest.micros() <= micros,
                "{before:?} is after {micros}"
            );
            assert!(
                after.latest.micros() >= micros,
                "{after:?} is before {micros}"
            );
        }
        one.load(&key("k")).await.unwrap();
    }
}
