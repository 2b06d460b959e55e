//! Registers with faults that only several servers show. The history of their clients shows each one.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_postgres::PostgresRegister;
use ifmatch_register::conformance::history::ViolationKind;
use ifmatch_register::{Key, Register, RegisterError, Swap, Wrapper, async_trait};
use ifmatch_testbed::{Clients, postgres};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::{client, connect, start};

/// Loads from a standby.
struct ReadsFromStandby {
    primary: PostgresRegister,
    standby: Client,
}

#[async_trait]
impl Wrapper for ReadsFromStandby {
    fn inner(&self) -> &dyn Register {
        &self.primary
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let load = "SELECT record FROM ifmatch_records WHERE key = $1";
        let row = self
            .standby
            .query_opt(load, &[&key.as_str().as_bytes()])
            .await
            .unwrap();
        Ok(row.map(|row| Record::decode(row.get(0)).unwrap()))
    }
}

/// Cancels a statement that waits for the standby, and takes the server's response for a success.
struct CancelsLateStatements {
    register: PostgresRegister,
    client: Client,
    other: Client,
}

impl CancelsLateStatements {
    /// Cancels statements until it is dropped.
    async fn cancel(&self) -> ! {
        let cancel =
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        loop {
            self.other.query(cancel, &[]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[async_trait]
impl Wrapper for CancelsLateStatements {
    fn inner(&self) -> &dyn Register {
        &self.register
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let next = next.expect("clients remove no records");
        let swap = "INSERT INTO ifmatch_records AS r VALUES ($1, $2, $3)
            ON CONFLICT (key) DO UPDATE SET revision = $2, record = $3 WHERE r.revision = $4";
        let [revision, expected] =
            [next.revision(), expected].map(|revision| revision.get().cast_signed());
        let (key_bytes, record) = (key.as_str().as_bytes(), next.encode());
        let values: [&(dyn ToSql + Sync); 4] = [&key_bytes, &revision, &record, &expected];
        let swapped = tokio::select! {
            swapped = self.client.execute(swap, &values) => swapped.unwrap(),
            never = self.cancel() => never,
        };
        Ok(if swapped == 1 {
            Swap::Done
        } else {
            Swap::Conflict(self.register.load(key).await?)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_from_a_standby_are_noticed() {
    let primary = start().await;
    let standby = postgres::start_standby(primary.address(), &[]).await;
    let register = ReadsFromStandby {
        primary: connect(&primary).await,
        standby: client(&standby).await,
    };
    register
        .standby
        .batch_execute("SELECT pg_wal_replay_pause()")
        .await
        .unwrap();
    let register = Arc::new(register);
    let clients = Clients::new("standby", 3, 4).run(&register, 5).await;
    let violation = clients
        .check(&*register)
        .await
        .expect_err("the standby shows older records");
    assert_eq!(violation.kind(), ViolationKind::Stale, "{violation}");
}

/// A server that is asked to cancel answers that the change took place, although its standby doesn't have it.
#[tokio::test(flavor = "multi_thread")]
async fn the_cancellation_of_late_statements_is_noticed() {
    let mut primary = start().await;
    let mut standby = postgres::start_standby(primary.address(), &[]).await;
    postgres::sql(&primary, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    postgres::sql(&primary, "SELECT pg_reload_conf()");
    let register = CancelsLateStatements {
        register: connect(&primary).await,
        client: client(&primary).await,
        other: client(&primary).await,
    };
    let register = Arc::new(register);
    let clients = Clients::new("cancel", 3, 1).run(&register, 5).await;
    standby.kill();
    let clients = clients.run(&register, 5).await;
    primary.kill();
    standby.restart().await;
    postgres::promote(&standby);
    let violation = clients
        .check(&connect(&standby).await)
        .await
        .expect_err("acknowledged swaps are lost");
    assert_eq!(violation.kind(), ViolationKind::Stale, "{violation}");
}
