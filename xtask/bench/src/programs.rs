//! Optimised builds of the measured and measuring programs.

use std::path::PathBuf;
use std::time::Instant;

use xtask::Result;
use xtask::command::{Run, executable};
use xtask::workspace::Workspace;

/// Returns the gateway that `IFMATCH_BIN` names, or builds it.
pub(crate) fn gateway(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("IFMATCH_BIN") {
        return Ok(named.into());
    }
    build(workspace, "--package ifmatch-gateway --bin ifmatch")
}

/// Builds the services of benches/server.
pub(crate) fn server(workspace: &Workspace) -> Result<PathBuf> {
    build(workspace, "--package ifmatch-workspace --bench server")
}

/// Builds the clients of benches/client.
pub(crate) fn client(workspace: &Workspace) -> Result<PathBuf> {
    build(workspace, "--package ifmatch-workspace --bench client")
}

/// Builds the clients of benches/leases.
pub(crate) fn leases(workspace: &Workspace) -> Result<PathBuf> {
    build(workspace, "--package ifmatch-workspace --bench leases")
}

/// Builds the clients of benches/s3.
pub(crate) fn s3(workspace: &Workspace) -> Result<PathBuf> {
    build(workspace, "--package ifmatch-workspace --bench s3")
}

/// Builds the proxy of benches/pingora, a separate workspace.
pub(crate) fn pingora(workspace: &Workspace) -> Result<PathBuf> {
    build(workspace, "--manifest-path benches/pingora/Cargo.toml --target-dir target/pingora")
}

/// Builds and runs benches/growth.
pub(crate) fn growth(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    let program = build(workspace, "--package ifmatch-workspace --bench growth")?;
    Run::new(program, workspace.root()).args(quick.then_some("--quick")).passes(deadline)
}

/// Builds and runs benches/hashing.
pub(crate) fn hashing(workspace: &Workspace, deadline: Instant) -> Result {
    let program = build(workspace, "--package ifmatch-workspace --bench hashing")?;
    Run::new(program, workspace.root()).passes(deadline)
}

/// Builds and runs the hit ratio benchmark of ifmatch-cache.
pub(crate) fn hits(workspace: &Workspace, deadline: Instant) -> Result {
    let program = build(workspace, "--package ifmatch-cache --bench hit_ratio")?;
    Run::new(program, workspace.root()).passes(deadline)
}

/// Builds and runs the benchmark of the shared registers.
pub(crate) fn registers(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    let program = build(workspace, "--package xtask-registers --bin xtask-registers")?;
    Run::new(program, workspace.root()).args(["bench"]).args(quick.then_some("--quick")).passes(deadline)
}

/// Builds a program in release mode, and returns its path.
fn build(workspace: &Workspace, what: &str) -> Result<PathBuf> {
    println!("building {what}");
    let args = format!("build --release --locked --quiet {what} --message-format json-render-diagnostics");
    let messages = Run::cargo(&args, workspace.root()).output()?;
    executable(&messages).ok_or_else(|| format!("cargo does not say where it put {what}").into())
}
