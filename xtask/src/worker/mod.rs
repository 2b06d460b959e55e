//! `cargo xtask worker`: builds the Cloudflare Worker, and serves it on this machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::command::Run;
use crate::wasm::{self, Target};
use crate::workspace::Workspace;
use crate::{Result, npm};

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
    npm::require(&workspace, npm::MINIFLARE, deadline)?;
    let mut run = Run::new("node", workspace.root())
        .args([workspace.root().join(npm::MINIFLARE).join("serve.mjs")])
        .args(["--modules".as_ref(), folder.as_os_str()])
        .args(["--port", &options.port.to_string()]);
    if let Some(port) = options.listen_tables {
        run = run.args(["--tables", &port.to_string()]);
    }
    if let Some(folder) = &options.persist {
        run = run.args(["--persist".as_ref(), std::path::absolute(folder)?.as_os_str()]);
    }
    run.serve()
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

/// How many bytes the Worker has, compressed.
pub(crate) fn size(folder: &Path) -> Result<usize> {
    ["entry.js", "index.js", "index_bg.wasm"].iter().map(|file| wasm::compressed(&folder.join(file))).sum()
}
