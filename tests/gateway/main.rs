//! The real binary over real sockets: starting, access, limits, TLS, stopping, metrics, and input that is wrong.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation is a failed test")]

mod access;
mod bad_input;
mod limits;
mod metrics;
mod session;
mod shutdown;
mod slow_clients;
mod start;
mod tls;

use std::path::Path;

use support::Gateway;

/// A gateway on the embedded store in `folder`, with further flags.
fn serve(folder: &Path, flags: &[&str]) -> Gateway {
    Gateway::start(
        ["serve", "--data"]
            .iter()
            .map(AsRef::as_ref)
            .chain([folder.as_os_str()])
            .chain(flags.iter().map(AsRef::as_ref)),
    )
}

/// The head of a `PUT /c/name` that promises so many bytes.
fn put_head(name: &str, length: usize) -> String {
    format!("PUT /c/{name} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n")
}

/// A whole `GET`.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}
