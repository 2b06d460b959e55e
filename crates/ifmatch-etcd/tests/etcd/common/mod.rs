//! Connections to etcd.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use ifmatch_etcd::{ConnectErrorKind, EtcdRegister};
use ifmatch_testbed::within;

/// Connects, once the cluster has a leader.
pub(crate) async fn connect(url: &str) -> EtcdRegister {
    let connected = async {
        loop {
            match EtcdRegister::connect(url).await {
                Ok(register) => return register,
                Err(error) => assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(&format!("a connection to {url}"), Box::pin(connected)).await
}
