//! Warnings in the log. They need a process of their own: other tests would turn them off.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::sync::{Arc, Mutex};

use ifmatch_redis::RedisRegister;
use ifmatch_testbed::Server;
use ifmatch_testbed::redis::{durable, start};

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
async fn a_server_that_does_not_sync_each_swap_causes_a_warning() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let warnings = async |server: Server| {
        log.0.lock().unwrap().clear();
        RedisRegister::connect(&server.url()).await.unwrap();
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    };
    assert_eq!(warnings(durable().await).await, "");
    let relaxed = start(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    let warning = warnings(relaxed).await;
    assert!(warning.contains("appendfsync always") && !warning.contains("appendonly yes"), "{warning}");
    let warning = warnings(start(&["--appendonly", "no"]).await).await;
    assert!(warning.contains("appendonly yes"), "{warning}");
}
