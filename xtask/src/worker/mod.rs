//! `cargo xtask worker`: builds the Cloudflare Worker, and serves it on this machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::command::Run;
use crate::step::Context;
use crate::wasm::{self, Target};
use crate::workspace::Workspace;
use crate::{Result, npm, sdk};

/// What goes between the runtime and the bindings.
const ENTRY: &str = include_str!("entry.js");

/// What `cargo xtask worker` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Port on 127.0.0.1 to serve blobs on.
    #[arg(long, default_value_t = 8787)]
    port: u16,
    /// Port on 127.0.0.1 to serve tables on; without it there are none.
    #[arg(long, value_name = "PORT")]
    listen_tables: Option<u16>,
    /// Folder that the blobs are kept in; without it they are gone at the end.
    #[arg(long, value_name = "DIR")]
    persist: Option<PathBuf>,
    /// Builds it and does not serve it.
    #[arg(long)]
    build: bool,
}

/// Builds, and serves until it is interrupted.
pub(crate) fn run(options: &Options) -> Result {
    let workspace = Workspace::load()?;
    let deadline = Instant::now() + Duration::from_hours(1);
    let folder = build(&workspace, deadline)?;
    if options.build {
        return Ok(());
    }
    let persist = options.persist.as_deref().map(std::path::absolute).transpose()?;
    let server = Server { folder: &folder, port: options.port, tables: options.listen_tables, persist };
    server.run(&workspace, deadline)?.serve()
}

/// The Worker under miniflare.
pub(crate) struct Server<'a> {
    /// Where its modules are.
    pub(crate) folder: &'a Path,
    /// The port of the blobs.
    pub(crate) port: u16,
    /// The port of the tables.
    pub(crate) tables: Option<u16>,
    /// Where the state is kept.
    pub(crate) persist: Option<PathBuf>,
}

impl Server<'_> {
    /// The command that serves until its standard input ends.
    pub(crate) fn run(&self, workspace: &Workspace, deadline: Instant) -> Result<Run> {
        npm::require(workspace, npm::MINIFLARE, deadline)?;
        let mut run = Run::new("node", workspace.root())
            .args([workspace.root().join(npm::MINIFLARE).join("serve.mjs")])
            .args(["--modules".as_ref(), self.folder.as_os_str()])
            .args(["--port", &self.port.to_string()]);
        if let Some(port) = self.tables {
            run = run.args(["--tables", &port.to_string()]);
        }
        if let Some(folder) = &self.persist {
            run = run.args(["--persist".as_ref(), folder.as_os_str()]);
        }
        Ok(run)
    }
}

/// Builds the Worker, and returns the folder of its modules: the first is `entry.js`.
pub(crate) fn build(workspace: &Workspace, deadline: Instant) -> Result<PathBuf> {
    let module = wasm::build(workspace, "ifmatch-worker", deadline)?;
    let folder = workspace.target().join("worker");
    wasm::write(&module, Target::Worker, &folder)?;
    std::fs::write(folder.join("entry.js"), ENTRY)?;
    println!("{}: {} bytes compressed", folder.display(), size(&folder)?);
    Ok(folder)
}

/// What must hold of the Worker: its size, what its tests say, and that the Azure clients work with it.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let folder = build(context.workspace, context.deadline)?;
    let (size, most) = (size(&folder)?, budget(context.workspace)?);
    if size > most {
        return Err(format!("the Worker has {size} bytes compressed, and wasm/budget.json allows {most}").into());
    }
    npm::require(context.workspace, npm::MINIFLARE, context.deadline)?;
    Run::new("node", &context.workspace.root().join("wasm/tests"))
        .args(["--test", "--test-concurrency=1", "."])
        .env("IFMATCH_WORKER", &folder)
        .passes(context.deadline)?;
    sdk::check_worker(context, &folder)
}

/// The most bytes that the Worker may have, compressed.
fn budget(workspace: &Workspace) -> Result<usize> {
    let text = std::fs::read_to_string(workspace.root().join("wasm/budget.json"))?;
    let budget: serde_json::Value = serde_json::from_str(&text)?;
    let bytes = budget["compressed bytes"].as_u64().ok_or("wasm/budget.json has no `compressed bytes`")?;
    Ok(usize::try_from(bytes)?)
}

/// How many bytes the Worker has, compressed: all its modules.
fn size(folder: &Path) -> Result<usize> {
    std::fs::read_dir(folder)?
        .map(|entry| {
            let path = entry?.path();
            if path.is_dir() { size(&path) } else { wasm::compressed(&path) }
        })
        .sum()
}
