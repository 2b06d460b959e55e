//! A server that is measured: pinned to a core, and taken down when this is dropped.

use std::net::SocketAddr;

use crate::exchange::{Answer, ask};
use xtask::Result;
use xtask::command::{Run, Running};
use xtask::listening;

/// The core of the servers.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of the load.
pub(crate) const CLIENT_CORE: &str = "1";

/// What is asked of every server.
pub(crate) struct Row {
    /// As the table calls it.
    pub(crate) name: &'static str,
    /// The last segment of the path.
    pub(crate) file: &'static str,
    /// The length of the content in bytes.
    pub(crate) len: usize,
    /// Whether the client has it already.
    pub(crate) revalidates: bool,
}

/// A running server.
pub(crate) struct Subject {
    name: &'static str,
    /// What comes before the file in its paths.
    folder: &'static str,
    address: SocketAddr,
    /// None: it is not a process of its own.
    running: Option<Running>,
}

impl Subject {
    /// Starts a server on a free port, on its core, and waits until it listens.
    pub(crate) fn start(
        name: &'static str,
        folder: &'static str,
        command: impl FnOnce(Run, SocketAddr) -> Run,
        dir: &std::path::Path,
    ) -> Result<Self> {
        let address = listening::free_address()?;
        let pinned = Run::new("taskset", dir).args(["-c", SERVER_CORE]);
        let running = command(pinned, address).start()?;
        listening::wait(name, address)?;
        Ok(Self { name, folder, address, running: Some(running) })
    }

    /// A server that runs already.
    pub(crate) fn of(name: &'static str, address: SocketAddr) -> Self {
        Self { name, folder: "", address, running: None }
    }

    /// As the table calls it.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of a file.
    pub(crate) fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.folder)
    }

    /// The seconds of processor time that it has taken so far.
    pub(crate) fn cpu(&self) -> Result<f64> {
        self.running.as_ref().ok_or("it is not a process of its own")?.cpu()
    }

    /// The bytes of memory that it has now.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.running.as_ref().ok_or("it is not a process of its own")?.resident()
    }

    /// Stores a file of so many bytes.
    pub(crate) fn put(&self, file: &str, len: usize) -> Result {
        let answer = ask(self.address, &format!("PUT {}", self.path(file)), &[], &vec![b'x'; len])?;
        if answer.status == 201 { Ok(()) } else { Err(format!("{}: PUT is answered {answer:?}", self.name).into()) }
    }

    /// The answer to what a row asks, if it is the right one.
    pub(crate) fn check(&self, row: &Row) -> Result<Answer> {
        let fields = self.fields(row)?;
        let answer = ask(self.address, &format!("GET {}", self.path(row.file)), &fields, &[])?;
        let expected = if row.revalidates { (304, 0) } else { (200, row.len) };
        if (answer.status, answer.len) == expected {
            Ok(answer)
        } else {
            Err(format!("{}, {}: expected {expected:?}, got {answer:?}", self.name, row.name).into())
        }
    }

    /// The field lines of a row's requests.
    pub(crate) fn fields(&self, row: &Row) -> Result<Vec<String>> {
        if !row.revalidates {
            return Ok(Vec::new());
        }
        let answer = ask(self.address, &format!("GET {}", self.path(row.file)), &[], &[])?;
        let tag = answer.field("etag").ok_or_else(|| format!("{}: no tag in {answer:?}", self.name))?;
        Ok(vec![format!("If-None-Match: {tag}")])
    }
}
