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

/// Where a machine has a folder in memory. The runtime waits for its disk in the thread that also watches its clients, and
/// on a busy disk drops those who come in meanwhile.
const MEMORY: &str = "/dev/shm";

/// A Worker that serves on free ports, with a state of its own, for as long as this lives.
pub(crate) struct Served {
    /// Where the blobs are.
    pub(crate) blobs: SocketAddr,
    /// Where the tables are.
    pub(crate) tables: SocketAddr,
    /// What serves.
    pub(crate) running: Running,
}

impl Served {
    /// Starts one, which writes what it has to say into a file.
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
