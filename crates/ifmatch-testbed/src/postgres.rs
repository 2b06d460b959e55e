//! `PostgreSQL`. Any user of the machine may connect, as `postgres`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Signal, geteuid};

use crate::server::{Program, Server};

/// The user as which a server runs if the test runs as root, which the server refuses.
const USER: &str = "postgres";
/// Debian package.
const PACKAGE: &str = "postgresql";

/// Starts an empty server with settings for its configuration file, such as `max_connections=20`.
///
/// # Panics
/// Same as [`Server::start`].
pub async fn start(settings: &[&str]) -> Server {
    start_with(settings, |_| {}).await
}

/// Starts a server like [`start`], after a change to the folder of its data.
///
/// # Panics
/// Same as [`Server::start`].
pub async fn start_with(
    settings: &[&str],
    change: impl Fn(&Path) + Send + Sync + 'static,
) -> Server {
    serve(settings, move |data| {
        output(as_server("/bin/cp").arg("-r").arg(template()).arg(data));
        change(data);
    })
    .await
}

/// Starts a standby of a server.
///
/// # Panics
/// Same as [`Server::start`].
pub async fn start_standby(primary: SocketAddr, settings: &[&str]) -> Server {
    serve(settings, move |data| {
        let mut copy = as_server("pg_basebackup");
        copy.args([
            "-h",
            &primary.ip().to_string(),
            "-p",
            &primary.port().to_string(),
            "-U",
            "postgres",
        ]);
        output(
            copy.args(["--checkpoint=fast", "--write-recovery-conf", "-D"])
                .arg(data),
        );
    })
    .await
}

async fn serve(settings: &[&str], create: impl Fn(&Path) + Send + Sync + 'static) -> Server {
    let settings: Vec<String> = settings
        .iter()
        .map(|setting| (*setting).to_owned())
        .collect();
    let command = move |port: u16, folder: &Path| {
        let data = data(folder);
        if !data.exists() {
            // The server's user creates its data there.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o777))
                .expect("the folder is ours");
            create(&data);
        }
        let mut command = as_server("postgres");
        command.arg("-D").arg(data).args(["-p", &port.to_string()]);
        command.args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
        for setting in &settings {
            command.args(["-c", setting]);
        }
        command.stderr(
            fs::File::options()
                .create(true)
                .append(true)
                .open(folder.join("log"))
                .expect("a log file"),
        );
        command
    };
    let url = ("postgres://postgres@", "/postgres");
    let (command, name) = (Box::new(command), "postgres".to_owned());
    Server::start(Program {
        name,
        package: PACKAGE,
        url,
        command,
        is_ready,
        end: Signal::QUIT,
    })
    .await
}

/// Returns the folder of a server's data, given its folder.
pub fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Runs statements, and returns the rows of the last one, without alignment.
///
/// # Panics
/// Panics if a statement fails.
pub fn sql(server: &Server, statements: &str) -> String {
    let mut command = program("psql");
    command.args([
        "--quiet",
        "--no-psqlrc",
        "--tuples-only",
        "--no-align",
        "--command",
        statements,
        &server.url(),
    ]);
    output(&mut command).trim().to_owned()
}

/// Writes a file into a server's data that only the server's user can read.
///
/// # Panics
/// Panics if the file can't be written.
pub fn write_as_owner(data: &Path, name: &str, text: &str) {
    let mut command = as_server("/bin/sh");
    output(
        command
            .args(["-c", "umask 077; printf %s \"$1\" > \"$0\""])
            .arg(data.join(name))
            .arg(text),
    );
}

/// Promotes a standby to primary, and waits for it.
///
/// # Panics
/// Panics if the server isn't a standby.
pub fn promote(server: &Server) {
    assert_eq!(
        sql(server, "SELECT pg_promote()"),
        "t",
        "the standby is promoted"
    );
}

fn is_ready(address: SocketAddr) -> bool {
    let mut probe = program("pg_isready");
    probe.args([
        "-q",
        "-h",
        &address.ip().to_string(),
        "-p",
        &address.port().to_string(),
    ]);
    probe.status().is_ok_and(|status| status.success())
}

/// Returns the data that servers start from, created once for this machine's user.
fn template() -> PathBuf {
    let version = programs().to_string_lossy().replace(['/', ' '], "-");
    let template =
        std::env::temp_dir().join(format!("ifmatch-testbed-{}{version}", geteuid().as_raw()));
    if !template.exists() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))
            .expect("the folder is ours");
        let new = folder.path().join("data");
        let settings = [
            "-A",
            "trust",
            "-U",
            "postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ];
        output(as_server("initdb").arg("-D").arg(&new).args(settings));
        // Another process may have created it meanwhile.
        let renamed = fs::rename(&new, &template);
        assert!(renamed.is_ok() || template.exists(), "{renamed:?}");
    }
    template
}

/// Returns a command that runs as the server's user.
fn as_server(name: &str) -> Command {
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
            .arg(path(name));
        command
    } else {
        Command::new(path(name))
    };
    command.current_dir("/");
    command
}

/// Returns a command of `PostgreSQL`, such as `pgbench`.
///
/// # Panics
/// Panics if `PostgreSQL` is missing, with the command that installs it.
pub fn program(name: &str) -> Command {
    Command::new(path(name))
}

fn path(name: &str) -> PathBuf {
    if name.starts_with('/') {
        name.into()
    } else {
        programs().join(name)
    }
}

/// Returns the folder of the programs. Debian has a folder for each version.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = debian.map(|version| version.join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&path));
    let found = folders
        .into_iter()
        .find(|folder| folder.join("initdb").is_file());
    found.unwrap_or_else(|| {
        panic!("PostgreSQL is missing: install it with `apt-get install {PACKAGE}`")
    })
}

/// Runs a command to its end, and returns its output.
fn output(command: &mut Command) -> String {
    let finished = command.stdin(Stdio::null()).output();
    let Output {
        status,
        stdout,
        stderr,
    } = finished.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8_lossy(&stdout).into_owned()
}
