//! Leases and conditional writes: the gateway compared with Azurite, and the gain of group commits.

use std::net::SocketAddr;
use std::time::Instant;

use crate::subject::{CLIENT_CORE, Subject, TWO_CORES};
use crate::{programs, rounds};
use xtask::Result;
use xtask::command::Run;
use xtask::npm;
use xtask::step::Tool;
use xtask::workspace::Workspace;

const TOOLS: &[Tool] = &[
    Tool {
        name: "Node",
        probe: &["node", "--version"],
        install: "apt-get install nodejs",
    },
    TWO_CORES,
];

/// Measures and prints the tables. Both servers write to a folder; only the gateway waits for the disk.
pub(crate) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    TOOLS.iter().try_for_each(|tool| tool.require(workspace))?;
    let azurite = workspace
        .root()
        .join(npm::AZURITE)
        .join("node_modules/azurite/dist/src/blob/main.js");
    if !azurite.exists() {
        return Err(
            "Azurite is not installed: run npm ci --ignore-scripts in tests/azurite".into(),
        );
    }
    let (gateway, program) = (programs::gateway(workspace)?, programs::leases(workspace)?);
    let dir = rounds::folder(workspace)?;
    let serve = |run: Run, address: SocketAddr| {
        run.args([&gateway])
            .args([
                "serve",
                "--listen",
                &address.to_string(),
                "--listen-tables",
                "off",
                "--data",
            ])
            .args([dir.join("data")])
    };
    let emulate = |run: Run, address: SocketAddr| {
        run.args(["node"])
            .args([&azurite])
            .args(["--blobPort", &address.port().to_string(), "--location"])
            .args([dir.join("azurite")])
            .args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"])
    };
    let gateway = Subject::start("gateway", "", serve, &dir)?;
    let azurite = Subject::start("Azurite", "", emulate, &dir)?;
    let at = |subject: &Subject| format!("{}={}", subject.name(), subject.address());
    Run::new("taskset", &dir)
        .args(["-c", CLIENT_CORE])
        .args([program])
        .args([at(&gateway), at(&azurite)])
        .args(quick.then_some("--quick"))
        .passes(deadline)
}
