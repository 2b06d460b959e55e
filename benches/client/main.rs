//! The client toolkit beside others: updates under contention, and the failover of locks.
//!
//! ```text
//! client IFMATCH PYTHON [--quick]
//! ```
//!
//! `IFMATCH` is the gateway's program, `PYTHON` an environment's with Azure's SDK. Starts the gateway and etcd, both of
//! which sync each write to the disk before they answer.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "prints its tables, and its progress"
)]

mod failover;
mod stm;
mod updates;

use std::path::PathBuf;
use std::time::Duration;

use ifmatch_testbed::{Program, Server, etcd};

/// The servers and programs of a run.
struct Site {
    binary: PathBuf,
    python: PathBuf,
    gateway: Server,
    etcd: Server,
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let [binary, python, ..] = args.as_slice() else {
        panic!("see the first lines of benches/client/main.rs")
    };
    let serve = |port: u16, folder: &std::path::Path| {
        let data = folder.join("data").display().to_string();
        let listen = format!("127.0.0.1:{port}");
        [
            "serve",
            "--listen",
            &listen,
            "--listen-tables",
            "off",
            "--data",
            &data,
        ]
        .map(str::to_owned)
        .into()
    };
    let gateway = Server::start(Program::new(binary, "ifmatch", ("http://", ""), serve)).await;
    let site = Site {
        binary: binary.into(),
        python: python.into(),
        gateway,
        etcd: etcd::start(&[]).await,
    };
    let (rounds, time) = if quick {
        (1, Duration::from_millis(500))
    } else {
        (5, Duration::from_secs(4))
    };
    updates::run(&site, rounds, time).await;
    failover::run(&site, if quick { 10 } else { 100 });
}
