//! A server for one test.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use ifmatch_postgres::{OpenErrorKind, PostgresRegister, migrate};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// The data directory that the servers start from.
static TEMPLATE: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = open_folder();
    let data = folder.path().join("data");
    let output = as_server("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "postgres", "--no-sync"]).output();
    let output = output.expect("initdb runs");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    folder
});

/// A running or stopped server.
#[derive(Debug)]
pub(crate) struct Server {
    folder: TempDir,
    address: SocketAddr,
    settings: Vec<String>,
    process: Option<Child>,
}

impl Server {
    /// Starts a server with the register's tables.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await.migrated().await
    }

    /// Starts an empty server with settings for its configuration file.
    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        let mut server = Self::create(settings);
        server.run();
        server.until_ready().await;
        server
    }

    /// Creates a server that does not run yet.
    pub(crate) fn create(settings: &[&str]) -> Self {
        let folder = open_folder();
        let from = TEMPLATE.path().join("data");
        let copied = as_server("/bin/cp").arg("-r").arg(from).arg(folder.path()).status().expect("cp runs");
        assert!(copied.success());
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Self { folder, address, settings, process: None }
    }

    async fn migrated(self) -> Self {
        migrate(&self.url()).await.expect("the tables are created");
        self
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the server's superuser.
    pub(crate) fn url(&self) -> String {
        url_at(self.address)
    }

    /// Returns the folder of the data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file into the folder of the data that only the server's user can read.
    pub(crate) fn write_as_owner(&self, name: &str, text: &str) {
        let mut command = as_server("/bin/sh");
        command.args(["-c", "umask 077; cat > \"$0\""]).arg(self.data().join(name)).stdin(Stdio::piped());
        let mut writer = command.spawn().expect("sh runs");
        writer.stdin.take().expect("it is piped").write_all(text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    pub(crate) async fn register(&self) -> PostgresRegister {
        PostgresRegister::connect(&self.url()).await.expect("the server runs")
    }

    /// Returns a connection of the test's own.
    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.expect("the server runs");
        tokio::spawn(connection);
        client
    }

    /// Starts the server, if it has been stopped.
    pub(crate) fn run(&mut self) {
        let mut command = as_server("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.address.port().to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        self.process = Some(command.stderr(log).spawn().expect("the server starts"));
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Waits until the server answers. Starts it again while processes of its predecessor have not ended.
    pub(crate) async fn until_ready(&mut self) {
        for _ in 0..1_200 {
            if self.process.as_mut().is_some_and(|process| process.try_wait().unwrap().is_some()) {
                self.run();
            }
            match PostgresRegister::connect(&self.url()).await {
                Err(error) if error.kind() == OpenErrorKind::Unreachable => {}
                _ => return,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the server does not start:\n{}", std::fs::read_to_string(self.log()).unwrap());
    }

    /// Kills the server, as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// Returns the URL of the superuser of the server that an address leads to.
pub(crate) fn url_at(address: SocketAddr) -> String {
    format!("postgres://postgres@{address}/postgres")
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a folder that the server's user can use.
fn open_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Returns a command that runs as the server's user. The server refuses to run as root.
pub(crate) fn as_server(program: &str) -> Command {
    let program = if program.starts_with('/') { PathBuf::from(program) } else { programs().join(program) };
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/").stdout(Stdio::null());
    command
}

/// Returns the folder of the server's programs.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = debian.map(|version| version.join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&path));
    let found = folders.into_iter().find(|folder| is_program(&folder.join("initdb")));
    found.expect("PostgreSQL is missing: apt-get install postgresql")
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}
