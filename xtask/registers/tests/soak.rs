//! The soak test in a short form, on each engine.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

fn soak(engine: &str) {
    let status = Command::new(env!("CARGO_BIN_EXE_xtask-registers"))
        .args([
            "soak",
            "--engine",
            engine,
            "--operations",
            "10000",
            "--hold",
            "2",
        ])
        .status()
        .expect("the program starts");
    assert!(status.success(), "{status}");
}

#[test]
fn postgres_loses_nothing_under_faults() {
    soak("postgres");
}

#[test]
fn redis_loses_nothing_under_faults() {
    soak("redis");
}

#[test]
fn etcd_loses_nothing_under_faults() {
    soak("etcd");
}

#[test]
fn a_gateway_by_http_loses_nothing_under_faults() {
    soak("http");
}
