//! Warnings in the log. They need a process of their own: other tests would turn them off.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ifmatch_redis::RedisRegister;
use ifmatch_testbed::redis::{durable, start};
use ifmatch_testbed::{Log, Server};

#[tokio::test]
async fn a_server_that_does_not_sync_each_swap_causes_a_warning() {
    let (log, _guard) = Log::collect();
    let warnings = async |server: Server| {
        log.take();
        RedisRegister::connect(&server.url()).await.unwrap();
        log.take()
    };
    assert_eq!(warnings(durable().await).await, "");
    let relaxed = start(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    let warning = warnings(relaxed).await;
    assert!(
        warning.contains("appendfsync always") && !warning.contains("appendonly yes"),
        "{warning}"
    );
    let warning = warnings(start(&["--appendonly", "no"]).await).await;
    assert!(warning.contains("appendonly yes"), "{warning}");
}
