//! A server process on a free port.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;

/// Number of ports to try: another process may take a free port first.
const ATTEMPTS: usize = 20;
/// Pause between attempts to connect to a starting server.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of attempts to connect, about two minutes.
const CONNECTS: usize = 6_000;

/// A server process in a temporary folder. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    program: String,
    arguments: Vec<String>,
    folder: TempDir,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts a program, and waits until it accepts connections on its port. `arguments` gets a free port and the folder.
    ///
    /// # Panics
    /// If the program is missing, with the Debian `package` that has it, or if it does not start.
    pub async fn start(program: &str, package: &str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            let arguments = arguments(port, folder.path());
            let child = spawn(program, &arguments, folder.path(), package);
            let mut server = Self { program: program.to_owned(), arguments, folder, port, child };
            if server.accepts().await {
                return server;
            }
        }
        panic!("{program} does not start: see its output above");
    }

    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the server's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the process, as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    /// Starts a killed server again, in its folder and on its port.
    pub async fn restart(&mut self) {
        for _ in 0..ATTEMPTS {
            self.child = spawn(&self.program, &self.arguments, self.folder.path(), "");
            if self.accepts().await {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{} does not start again: see its output above", self.program);
    }

    /// Waits until the server accepts connections. Returns `false` if the process ends before.
    async fn accepts(&mut self) -> bool {
        for _ in 0..CONNECTS {
            if self.child.try_wait().expect("the process is ours").is_some() {
                return false;
            }
            if TcpStream::connect(self.address()).await.is_ok() {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound socket").port()
}

fn spawn(program: &str, arguments: &[String], folder: &Path, package: &str) -> Child {
    let child = Command::new(program).args(arguments).current_dir(folder).stdout(Stdio::null()).spawn();
    child.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("{program} is missing: install it with `apt-get install {package}`"),
        _ => panic!("{program} cannot be started: {error}"),
    })
}
