//! `cargo xtask worker`: builds the Cloudflare Worker and serves it on this machine.

pub(crate) mod check;
pub(crate) mod server;
mod template;
mod wrangler;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Result;
use crate::wasm::{self, Target};
use crate::workspace::Workspace;

pub(crate) use wrangler::bundle;
pub use wrangler::start_up;

use server::Server;

/// Entry module of the Worker.
const ENTRY: &str = include_str!("entry.js");

/// The class for other Workers, of the template.
const BLOBS: &str = include_str!("../../../wasm/template/src/blobs.js");

/// Options of `cargo xtask worker`.
#[derive(Args)]
pub struct Options {
    /// Port for blobs on 127.0.0.1.
    #[arg(long, default_value_t = 8787)]
    port: u16,
    /// Port for tables on 127.0.0.1. Without it, tables are not served.
    #[arg(long, value_name = "PORT")]
    listen_tables: Option<u16>,
    /// Folder for the blobs. Without it, they are kept in memory.
    #[arg(long, value_name = "DIR")]
    persist: Option<PathBuf>,
    /// Builds the Worker without serving it.
    #[arg(long)]
    build: bool,
}

/// Builds the Worker, and serves it until it is interrupted.
pub fn run(options: &Options) -> Result {
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

/// Builds the Worker, and returns the folder of its modules. The entry is `entry.js`.
pub fn build(workspace: &Workspace, deadline: Instant) -> Result<PathBuf> {
    let folder = build_package(workspace, "ifmatch-worker", "worker", deadline)?;
    std::fs::write(folder.join("blobs.js"), BLOBS)?;
    std::fs::write(folder.join("entry.js"), format!("{ENTRY}export {{ Blobs }} from \"./blobs.js\";\n"))?;
    Ok(folder)
}

/// Builds any Worker with `Records` as its class of Durable Objects.
fn build_package(workspace: &Workspace, package: &str, folder: &str, deadline: Instant) -> Result<PathBuf> {
    let module = wasm::build(workspace, package, deadline)?;
    let folder = workspace.target().join(folder);
    write(&module, &folder)?;
    println!("{}: {} bytes compressed", folder.display(), size(&folder)?);
    Ok(folder)
}

/// Writes the modules of a Worker to a folder.
fn write(module: &Path, folder: &Path) -> Result {
    wasm::write(module, Target::Worker, folder)?;
    Ok(std::fs::write(folder.join("entry.js"), ENTRY)?)
}

/// Returns the compressed size of all modules.
fn size(folder: &Path) -> Result<usize> {
    std::fs::read_dir(folder)?
        .map(|entry| {
            let path = entry?.path();
            if path.is_dir() { size(&path) } else { wasm::compressed(&path) }
        })
        .sum()
}
