//! `cargo xtask worker`: builds the Cloudflare Worker, and serves it on this machine.

mod check;
mod server;
mod wrangler;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::Result;
use crate::wasm::{self, Target};
use crate::workspace::Workspace;

pub(crate) use check::check;
pub(crate) use server::{Served, Server};
pub(crate) use wrangler::start_up;

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
    server.command(&workspace, deadline)?.serve()
}

/// Builds the Worker, and returns the folder of its modules: the first is `entry.js`.
pub(crate) fn build(workspace: &Workspace, deadline: Instant) -> Result<PathBuf> {
    build_package(workspace, "ifmatch-worker", "worker", deadline)
}

/// The same of any package whose objects are `Records`.
fn build_package(workspace: &Workspace, package: &str, folder: &str, deadline: Instant) -> Result<PathBuf> {
    let module = wasm::build(workspace, package, deadline)?;
    let folder = workspace.target().join(folder);
    wasm::write(&module, Target::Worker, &folder)?;
    std::fs::write(folder.join("entry.js"), ENTRY)?;
    println!("{}: {} bytes compressed", folder.display(), check::size(&folder)?);
    Ok(folder)
}
