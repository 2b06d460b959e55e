//! The Worker under miniflare.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::command::{Run, Running};
use crate::step::Context;
use crate::workspace::Workspace;
use crate::{Result, listening, npm};

/// The Worker under miniflare.
pub(crate) struct Server<'a> {
    /// Folder of its modules.
    pub(crate) folder: &'a Path,
    /// Port of the blobs.
    pub(crate) port: u16,
    /// Port of the tables.
    pub(crate) tables: Option<u16>,
    /// Folder of its state.
    pub(crate) persist: Option<PathBuf>,
}

impl Server<'_> {
    /// Returns a command that serves until its standard input ends.
    pub(crate) fn command(&self, workspace: &Workspace, deadline: Instant) -> Result<Run> {
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
pub(crate) struct Served {
    /// Address of the blobs.
    pub(crate) blobs: SocketAddr,
    /// Address of the tables.
    pub(crate) tables: SocketAddr,
    /// The running process.
    pub(crate) running: Running,
}

impl Served {
    /// Starts a Worker that writes its output to a file.
    pub(crate) fn start(context: &Context<'_>, folder: &Path, log: &Path) -> Result<Self> {
        let (blobs, tables) = (listening::free_address()?, listening::free_address()?);
        let server = Server { folder, port: blobs.port(), tables: Some(tables.port()), persist: None };
        let mut command = server.command(context.workspace, context.deadline)?.log_to(log)?.attached();
        if Path::new(MEMORY).is_dir() {
            command = command.env("TMPDIR", MEMORY);
        }
        let running = command.start()?;
        listening::wait("the Worker", blobs)?;
        listening::wait("the Worker", tables)?;
        Ok(Self { blobs, tables, running })
    }
}
