//! The real binary over real sockets: startup, access and its log, accounts, leases, limits, shares, TLS, HTTP/2, reload, shutdown,
//! the service manager, metrics, the proxy, verification, backups, kills, and invalid input.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod access;
mod big;
mod client;
mod conflicts;
mod crash;
mod frames;
mod http2;
mod leases;
mod limits;
mod listeners;
mod mistakes;
mod observation;
mod proxy;
mod registers;
mod reload;
mod s3;
mod shares;
mod shutdown;
mod start;
mod tls;
mod upkeep;

use std::path::Path;

use support::raw::exchange;
use support::{Gateway, eventually};

/// Starts a gateway on `folder`.
fn serve(folder: &Path, flags: &[&str]) -> Gateway {
    Gateway::start(
        ["serve", "--data"]
            .iter()
            .map(AsRef::as_ref)
            .chain([folder.as_os_str()])
            .chain(flags.iter().map(AsRef::as_ref)),
    )
}

/// Waits until the metrics have this line.
#[track_caller]
fn wait_for(gateway: &Gateway, line: &str) {
    eventually(line, || {
        let metrics = exchange(gateway.address(), get("/-/metrics"));
        metrics
            .text()
            .lines()
            .any(|found| found == line)
            .then_some(())
    });
}

/// Returns the head of a `PUT /c/name` with this length.
fn put_head(name: &str, length: usize) -> String {
    format!("PUT /c/{name} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n")
}

/// Returns a complete `GET`.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}
