//! The real binary over real sockets: startup, access and its log, accounts, leases, waits, limits, shares, TLS, HTTP/2, reload, shutdown,
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
mod store_cache;
mod tls;
mod upkeep;
mod waits;

use std::path::Path;
use std::process::Command;

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

/// Starts a gateway whose blobs are in memory.
fn memory(flags: &[&str]) -> Gateway {
    Gateway::start(["serve", "--store", "memory://"].iter().chain(flags))
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

/// Texts in the log after a reload, and after one that has changed nothing.
const RELOADED: &str = "reloaded the configuration";
const NOT_RELOADED: &str = "cannot reload the configuration";

/// Sends SIGHUP and waits until the log contains this text once more.
#[track_caller]
fn hang_up(gateway: &Gateway, text: &str) {
    let count = || gateway.stderr().matches(text).count();
    let before = count();
    gateway.hang_up();
    eventually(text, || (count() > before).then_some(()));
}

/// Returns a shell with the environment of [`Gateway::command`]. In the script, `"$0" "$@"` is the gateway with its arguments.
fn in_shell(script: &str) -> Command {
    let gateway = Gateway::command();
    let mut shell = Command::new("sh");
    for (name, value) in gateway.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.args(["-c", script]).arg(gateway.get_program());
    shell
}

/// Returns the head of a `PUT /c/name` with this length.
fn put_head(name: &str, length: usize) -> String {
    format!("PUT /c/{name} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n")
}

/// Returns a complete `GET`.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}
