//! The checks of the Worker.

use std::path::Path;

use super::wrangler::{self, Copied};
use super::{Served, build, build_package, size};
use crate::command::Run;
use crate::step::Context;
use crate::workspace::FULL;
use crate::{Result, npm, sdk, wasm};

/// Checks the Worker's size and deployment, and runs its own tests, the black-box suite and the Azure clients.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let folder = build(context.workspace, context.deadline)?;
    wasm::check_size(context.workspace, "compressed bytes", size(&folder)?)?;
    npm::require(context.workspace, npm::MINIFLARE, context.deadline)?;
    Copied::build(context, "wasm/template")?.deploys(context, &["", "tables"])?;
    let example = Copied::build(context, "examples/worker_axum")?;
    example.deploys(context, &[""])?;
    let caller = context.workspace.root().join("examples/worker_caller");
    wrangler::check(context, &caller, &caller.join("src/index.js"), &[""])?;
    Run::new("node", &context.workspace.root().join("wasm/tests"))
        .args([
            "--test",
            "--test-concurrency=1",
            "--test-timeout=1200000",
            ".",
        ])
        .env("IFMATCH_WORKER", &folder)
        .env("IFMATCH_EXAMPLE", example.modules())
        .passes(context.deadline)?;
    black_box(context, &folder)?;
    register(context)?;
    sdk::check_worker(context, &folder)
}

/// Runs the black-box suite, which knows only a URL.
fn black_box(context: &Context<'_>, folder: &Path) -> Result {
    let log = context.workspace.target().join("worker.log");
    let served = Served::start(context, folder, &log)?;
    // An isolate's memory holds few bodies: more cases at a time would get 503.
    let run = Run::cargo(
        "test --locked --test blackbox -- --test-threads=4",
        context.workspace.root(),
    )
    .env("IFMATCH_SERVER", "worker")
    .env("IFMATCH_URL", format!("http://{}", served.blobs))
    .env("IFMATCH_TABLES_URL", format!("http://{}", served.tables));
    passes(context, run, &log)
}

/// Runs the conformance suite of registers on the one of Durable Objects.
fn register(context: &Context<'_>) -> Result {
    let folder = build_package(
        context.workspace,
        "worker-register",
        "worker-register",
        context.deadline,
    )?;
    let log = context.workspace.target().join("worker-register.log");
    let served = Served::start(context, &folder, &log)?;
    let run = Run::cargo(
        &format!("test --locked {FULL} --test worker_register"),
        context.workspace.root(),
    )
    .env("IFMATCH_URL", format!("http://{}", served.blobs));
    passes(context, run, &log)
}

/// Runs tests of a Worker. The error includes the Worker's log.
fn passes(context: &Context<'_>, run: Run, log: &Path) -> Result {
    run.passes(context.deadline).map_err(|error| {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        format!("{log}\n{error}").into()
    })
}
