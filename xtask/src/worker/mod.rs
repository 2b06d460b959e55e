//! `cargo xtask worker`: builds the Cloudflare Worker and serves it on this machine.

pub(crate) mod check;
mod wrangler;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::command::{Run, Running};
use crate::step::{BUILD, Context};
use crate::wasm::{self, Target};
use crate::workspace::Workspace;
use crate::{Result, listening, npm};

pub(crate) use wrangler::bundle;
pub use wrangler::start_up;

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
    /// Port for tables on 127.0.0.1. Without it, tables aren't served.
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
    let deadline = Instant::now() + BUILD;
    let folder = build(&workspace, deadline)?;
    if options.build {
        return Ok(());
    }
    let persist = options
        .persist
        .as_deref()
        .map(std::path::absolute)
        .transpose()?;
    let server = Server {
        folder: &folder,
        port: options.port,
        tables: options.listen_tables,
        persist,
    };
    server.command(&workspace, deadline)?.serve()
}

/// Builds the Worker, and returns the folder of its modules. The entry is `entry.js`.
pub fn build(workspace: &Workspace, deadline: Instant) -> Result<PathBuf> {
    let folder = build_package(workspace, "ifmatch-worker", "worker", deadline)?;
    std::fs::write(folder.join("blobs.js"), BLOBS)?;
    std::fs::write(
        folder.join("entry.js"),
        format!("{ENTRY}export {{ Blobs }} from \"./blobs.js\";\n"),
    )?;
    Ok(folder)
}

/// Builds any Worker with `Records` as its class of Durable Objects.
fn build_package(
    workspace: &Workspace,
    package: &str,
    folder: &str,
    deadline: Instant,
) -> Result<PathBuf> {
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
            if path.is_dir() {
                size(&path)
            } else {
                wasm::compressed(&path)
            }
        })
        .sum()
}

/// The Worker under miniflare.
struct Server<'a> {
    /// Folder of its modules.
    folder: &'a Path,
    /// Port of the blobs.
    port: u16,
    /// Port of the tables.
    tables: Option<u16>,
    /// Folder of its state.
    persist: Option<PathBuf>,
}

impl Server<'_> {
    /// Returns a command that serves until its standard input ends.
    fn command(&self, workspace: &Workspace, deadline: Instant) -> Result<Run> {
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

/// Folder in memory, if the machine has one. The runtime's disk access blocks the thread that accepts clients, and on a busy
/// disk drops new connections.
const MEMORY: &str = "/dev/shm";

/// A Worker on free ports with its own state, stopped on drop.
pub struct Served {
    /// Address of the blobs.
    pub blobs: SocketAddr,
    /// Address of the tables.
    pub tables: SocketAddr,
    /// The running process.
    pub running: Running,
}

impl Served {
    /// Starts a Worker that writes its output to a file.
    pub fn start(context: &Context<'_>, folder: &Path, log: &Path) -> Result<Self> {
        let (blobs, tables) = (listening::free_address()?, listening::free_address()?);
        let server = Server {
            folder,
            port: blobs.port(),
            tables: Some(tables.port()),
            persist: None,
        };
        let mut command = server
            .command(context.workspace, context.deadline)?
            .attached();
        if Path::new(MEMORY).is_dir() {
            command = command.env("TMPDIR", MEMORY);
        }
        let mut running = command.start_with_log(log)?;
        for address in [blobs, tables] {
            listening::wait("the Worker", address, || running.still_runs())?;
        }
        Ok(Self {
            blobs,
            tables,
            running,
        })
    }
}
