//! A measured server: pinned to a core, and stopped on drop.

use std::net::SocketAddr;

use crate::exchange::{Answer, ask};
use xtask::Result;
use xtask::command::{Run, Running};
use xtask::listening;
use xtask::step::Tool;

/// Core of the servers.
pub(crate) const SERVER_CORE: &str = "0";
/// Core of the load.
pub(crate) const CLIENT_CORE: &str = "1";
/// Both.
pub(crate) const TWO_CORES: Tool = Tool {
    name: "two CPU cores",
    probe: &["taskset", "-c", "0,1", "true"],
    install: "a machine with two cores",
};

/// The program that puts load on servers.
pub(crate) const WRK: Tool = Tool {
    name: "wrk",
    probe: &["which", "wrk"],
    install: "apt-get install -y wrk",
};

/// A request to every server.
pub(crate) struct Row {
    /// Name in the table.
    pub(crate) name: &'static str,
    /// Last segment of the path.
    pub(crate) file: &'static str,
    /// Length of the content in bytes.
    pub(crate) len: usize,
    /// `true` if the client has the current version.
    pub(crate) revalidates: bool,
}

/// A running server.
pub(crate) struct Subject {
    name: &'static str,
    /// Folder in the paths of its files.
    folder: &'static str,
    address: SocketAddr,
    /// `None` for a server in another process.
    running: Option<Running>,
}

impl Subject {
    /// Starts a server on its core and a free port, and waits until it listens.
    pub(crate) fn start(
        name: &'static str,
        folder: &'static str,
        command: impl FnOnce(Run, SocketAddr) -> Run,
        dir: &std::path::Path,
    ) -> Result<Self> {
        let address = listening::free_address()?;
        let pinned = Run::new("taskset", dir).args(["-c", SERVER_CORE]);
        let mut running =
            command(pinned, address).start_with_log(&dir.join(format!("{name}.log")))?;
        listening::wait(name, address, || running.still_runs())?;
        Ok(Self {
            name,
            folder,
            address,
            running: Some(running),
        })
    }

    /// Returns a server that already runs.
    pub(crate) fn of(name: &'static str, address: SocketAddr) -> Self {
        Self {
            name,
            folder: "",
            address,
            running: None,
        }
    }

    /// Returns its name in the table.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.folder)
    }

    /// Returns its CPU time in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        self.running
            .as_ref()
            .ok_or("it is not a separate process")?
            .cpu()
    }

    /// Returns its resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.running
            .as_ref()
            .ok_or("it is not a separate process")?
            .resident()
    }

    /// Stores a file of a given length.
    pub(crate) fn put(&self, file: &str, len: usize) -> Result {
        let answer = ask(
            self.address,
            &format!("PUT {}", self.path(file)),
            &[],
            &vec![b'x'; len],
        )?;
        if answer.status == 201 {
            Ok(())
        } else {
            Err(format!("{}: PUT is answered {answer:?}", self.name).into())
        }
    }

    /// Returns the response to a row's request, or an error if it isn't the expected one.
    pub(crate) fn check(&self, row: &Row) -> Result<Answer> {
        let fields = self.fields(row)?;
        let answer = ask(
            self.address,
            &format!("GET {}", self.path(row.file)),
            &fields,
            &[],
        )?;
        let expected = if row.revalidates {
            (304, 0)
        } else {
            (200, row.len)
        };
        if (answer.status, answer.len) == expected {
            Ok(answer)
        } else {
            Err(format!(
                "{}, {}: expected {expected:?}, got {answer:?}",
                self.name, row.name
            )
            .into())
        }
    }

    /// Returns the field lines of a row's requests.
    pub(crate) fn fields(&self, row: &Row) -> Result<Vec<String>> {
        if !row.revalidates {
            return Ok(Vec::new());
        }
        let answer = ask(
            self.address,
            &format!("GET {}", self.path(row.file)),
            &[],
            &[],
        )?;
        let tag = answer
            .field("etag")
            .ok_or_else(|| format!("{}: no tag in {answer:?}", self.name))?;
        Ok(vec![format!("If-None-Match: {tag}")])
    }
}
