//! A PostgreSQL server on a free port, with its data in a folder of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Finished, Process};

/// The user as which a server runs if the test runs as root, which PostgreSQL refuses.
const USER: &str = "postgres";
/// Time limit for the start, far beyond the expected time.
const PATIENCE: Duration = Duration::from_mins(2);
/// Interval between attempts to connect.
const POLL: Duration = Duration::from_millis(50);

/// A running PostgreSQL server. Dropping this kills it.
///
/// Anyone on this machine may connect, as the user `postgres`.
pub struct Postgres {
    folder: PathBuf,
    address: SocketAddr,
    process: Process,
}

impl Postgres {
    /// Creates a database cluster in `folder`, which must be empty, and starts its server.
    ///
    /// # Panics
    /// If PostgreSQL is not installed. The message names the command that installs it.
    pub fn start(folder: &Path) -> Self {
        let folder = folder.join("postgres");
        std::fs::create_dir(&folder).expect("the folder is writable");
        if is_root() {
            // The folders above must be accessible as well.
            for above in folder.ancestors().skip(1).filter(|above| above.starts_with(std::env::temp_dir())) {
                run(Command::new("chmod").arg("a+rx").arg(above));
            }
            run(Command::new("chown").arg(USER).arg(&folder));
        }
        let args = ["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C"];
        run(as_user("initdb").args(args).arg("--pgdata").arg(&folder));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        drop(listener);
        let process = serve(&folder, address);
        Self { folder, address, process }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of its database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    /// Kills it (SIGKILL), like a crash.
    pub fn kill(&mut self) -> Finished {
        let finished = self.process.kill();
        // Its children end once they notice.
        while TcpStream::connect(self.address).is_ok() {
            std::thread::sleep(POLL);
        }
        finished
    }

    /// Starts it again on the same port.
    pub fn restart(&mut self) {
        self.process = serve(&self.folder, self.address);
    }

    /// Runs statements.
    pub fn sql(&self, statements: &str) {
        run(as_user("psql").args(["--quiet", "--no-psqlrc", "--command", statements]).arg(self.url()));
    }
}

fn serve(folder: &Path, address: SocketAddr) -> Process {
    let mut command = as_user("postgres");
    command.arg("-D").arg(folder).arg("-k").arg(folder);
    command.args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-c", "max_connections=200"]);
    let process = Process::start(&mut command);
    for _ in 0..PATIENCE.as_millis() / POLL.as_millis() {
        let mut probe = as_user("psql");
        probe.args([
            "--quiet",
            "--no-psqlrc",
            "--command",
            "SELECT 1",
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "postgres",
        ]);
        if probe.args(["-p", &address.port().to_string()]).output().is_ok_and(|output| output.status.success()) {
            return process;
        }
        std::thread::sleep(POLL);
    }
    panic!("PostgreSQL does not start; its log:\n{}", process.stderr())
}

/// Returns a command of PostgreSQL.
fn as_user(name: &str) -> Command {
    let program = program(name);
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program).current_dir("/");
    command
}

/// Debian keeps the programs of each version in a folder of their own.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    let in_path =
        std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    found.pop().or_else(|| in_path.map(|folder| folder.join(name)).find(|path| path.exists())).unwrap_or_else(|| {
        panic!("PostgreSQL's program {name} is not installed: apt-get install postgresql");
    })
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
