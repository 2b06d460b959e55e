//! Warnings in the log. They need a process of their own: other tests would turn them off.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::sync::{Arc, Mutex};

use ifmatch_postgres::{PostgresRegister, migrate};
use ifmatch_testbed::postgres;

/// Collects log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn settings_that_may_lose_swaps_cause_warnings() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = postgres::start(&[]).await;
    migrate(&server.url()).await.unwrap();
    let warnings = async || {
        log.0.lock().unwrap().clear();
        PostgresRegister::connect(&server.url()).await.unwrap();
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    };
    assert_eq!(warnings().await, "");

    postgres::sql(&server, "ALTER ROLE postgres SET synchronous_commit = off");
    let warning = warnings().await;
    assert!(warning.contains("synchronous_commit is off"), "{warning}");
    postgres::sql(&server, "ALTER ROLE postgres RESET synchronous_commit");

    let _standby = postgres::start_standby(server.address(), &[]).await;
    while postgres::sql(&server, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "1" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let warning = warnings().await;
    assert!(warning.contains("not synchronous"), "{warning}");
    postgres::sql(&server, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    postgres::sql(&server, "SELECT pg_reload_conf()");
    // The server reads its settings some time after the call.
    while !warnings().await.is_empty() {}
}
