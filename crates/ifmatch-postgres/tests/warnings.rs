//! Warnings in the log. They need a process of their own: other tests would turn them off.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use ifmatch_postgres::{PostgresRegister, migrate};
use ifmatch_testbed::{Log, postgres, within};

#[tokio::test]
async fn settings_that_may_lose_swaps_cause_warnings() {
    let (log, _guard) = Log::collect();
    let server = postgres::start(&[]).await;
    migrate(&server.url()).await.unwrap();
    let warnings = async || {
        log.take();
        PostgresRegister::connect(&server.url()).await.unwrap();
        log.take()
    };
    assert_eq!(warnings().await, "");

    postgres::sql(&server, "ALTER ROLE postgres SET synchronous_commit = off");
    let warning = warnings().await;
    assert!(warning.contains("synchronous_commit is off"), "{warning}");
    postgres::sql(&server, "ALTER ROLE postgres RESET synchronous_commit");

    let _standby = postgres::start_standby(server.address(), &[]).await;
    let streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    within("the standby follows", async {
        while postgres::sql(&server, streaming) != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let warning = warnings().await;
    assert!(warning.contains("not synchronous"), "{warning}");
    postgres::sql(&server, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    postgres::sql(&server, "SELECT pg_reload_conf()");
    // The server reads its settings some time after the call.
    within("the warning ends", async {
        while !warnings().await.is_empty() {}
    })
    .await;
}
