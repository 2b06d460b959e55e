//! A server process on a port of its own.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write as _, stderr};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::port::Port;
use crate::processes;

/// Number of ports to try: a process other than a test may take one first.
const ATTEMPTS: usize = 20;
/// Pause between attempts to connect to a starting server.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of attempts to connect, or to start again, about two minutes.
const CONNECTS: usize = 6_000;
/// Number of looks at a server that is to end, about two seconds.
const LOOKS: usize = 100;
/// Time after which a test that still uses a server hangs.
const LIFE: Duration = Duration::from_mins(15);

/// Returns the command of a server on a port, with its data in a folder.
pub type Launch = Box<dyn Fn(u16, &Path) -> Command + Send + Sync>;

/// A program that serves on a port.
pub struct Program {
    /// Name of the program, for messages.
    pub name: String,
    /// Debian package that has the program.
    pub package: &'static str,
    /// Scheme, user and path of the server's URL, before and after its address.
    pub url: (&'static str, &'static str),
    /// The server's command.
    pub command: Launch,
    /// Returns `true` if the server at an address can be used.
    pub is_ready: fn(SocketAddr) -> bool,
    /// The signal that ends the server without leaving anything behind.
    pub end: Signal,
}

/// A server process in a temporary folder. Ended when dropped.
#[derive(Debug)]
pub struct Server {
    program: Program,
    folder: TempDir,
    port: Port,
    child: Option<Child>,
    /// Ends the watch of the test's duration when dropped.
    _watch: Sender<()>,
}

impl Program {
    /// Describes a program that can be used as soon as it accepts connections. The command ignores `SIGXFSZ`, so a
    /// limited file is an error (see [`Server::limit_files`]).
    pub fn new(
        name: &str,
        package: &'static str,
        url: (&'static str, &'static str),
        arguments: impl Fn(u16, &Path) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let program = name.to_owned();
        let command = move |port, folder: &Path| {
            let mut command = Command::new("env");
            command
                .args(["--ignore-signal=XFSZ", &program])
                .args(arguments(port, folder))
                .current_dir(folder);
            command
        };
        let is_ready = |address| TcpStream::connect(address).is_ok();
        Self {
            name: name.to_owned(),
            package,
            url,
            command: Box::new(command),
            is_ready,
            end: Signal::KILL,
        }
    }
}

impl Server {
    /// Starts a program, and waits until it can be used.
    ///
    /// # Panics
    /// Panics if the program is missing, with the package that has it, or if it doesn't start.
    pub async fn start(program: Program) -> Self {
        let folder = || tempfile::tempdir().expect("a temporary folder");
        let watch = watch(format!(
            "{} of {}",
            program.name,
            thread::current().name().unwrap_or_default()
        ));
        let mut server = Self {
            program,
            folder: folder(),
            port: Port::claim(),
            child: None,
            _watch: watch,
        };
        for _ in 0..ATTEMPTS {
            if server.run().await {
                return server;
            }
            server.port = Port::claim();
            server.folder = folder();
        }
        panic!(
            "{} does not start: see its output above",
            server.program.name
        );
    }

    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the server's URL.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// Returns the server's URL by way of a proxy.
    pub fn url_at(&self, address: SocketAddr) -> String {
        let (before, after) = self.program.url;
        format!("{before}{address}{after}")
    }

    /// Returns the server's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the CPU time of the server so far in seconds.
    pub fn cpu(&self) -> f64 {
        self.child
            .as_ref()
            .map_or(0.0, |child| processes::cpu(child.id()))
    }

    /// Kills the server's processes, as a crash of its machine does.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // No process can start another one that survives.
        processes::suspend(child.id());
        for id in processes::ids(child.id()) {
            processes::signal(id, Signal::KILL);
        }
        child.wait().expect("the process is ours");
    }

    /// Suspends all processes of the server (`SIGSTOP`).
    ///
    /// # Panics
    /// Panics if one still runs after two minutes.
    pub fn pause(&self) {
        if let Some(child) = &self.child {
            processes::suspend(child.id());
        }
    }

    /// Lets suspended processes continue.
    pub fn resume(&self) {
        for id in self
            .child
            .iter()
            .flat_map(|child| processes::ids(child.id()))
        {
            processes::signal(id, Signal::CONT);
        }
    }

    /// Limits the length of each file that the server writes, as a full disk would. `None` removes the limit.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        for id in self
            .child
            .iter()
            .flat_map(|child| processes::ids(child.id()))
        {
            let process = format!("/proc/{id}");
            // A process may end meanwhile.
            let Ok(owner) = fs::metadata(&process) else {
                continue;
            };
            let mut command = Command::new("prlimit");
            command.args([
                "--pid",
                &id.to_string(),
                &format!("--fsize={limit}:unlimited"),
            ]);
            if owner.uid() != geteuid().as_raw() {
                // A process may limit others of its own user.
                command.uid(owner.uid()).gid(owner.gid());
            }
            let limited = command.stderr(Stdio::null()).status();
            let limited =
                limited.expect("prlimit is missing: install it with `apt-get install util-linux`");
            assert!(
                limited.success() || !Path::new(&process).exists(),
                "process {id} cannot be limited"
            );
        }
    }

    /// Starts a killed server again, in its folder and on its port.
    pub async fn restart(&mut self) {
        self.kill();
        for _ in 0..CONNECTS {
            if self.run().await {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!(
            "{} does not start again: see its output above",
            self.program.name
        );
    }

    /// Starts the process, and waits until it can be used. Returns `false` if it ends before.
    async fn run(&mut self) -> bool {
        let command = &mut (self.program.command)(self.port.number(), self.folder.path());
        let spawned = command.stdout(Stdio::null()).spawn();
        let mut child = spawned.unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => self.program.missing(),
            _ => panic!("{} cannot be started: {error}", self.program.name),
        });
        for _ in 0..CONNECTS {
            if let Some(status) = child.try_wait().expect("the process is ours") {
                // `env`'s, if there is no such program.
                if status.code() == Some(127) {
                    self.program.missing();
                }
                return false;
            }
            if (self.program.is_ready)(self.address()) {
                self.child = Some(child);
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.child = Some(child);
        self.kill();
        false
    }
}

impl Program {
    fn missing(&self) -> ! {
        panic!(
            "{} is missing: install it with `apt-get install {}`",
            self.name, self.package
        )
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.resume();
        self.signal_first(self.program.end);
        self.kill();
    }
}

impl Server {
    /// Sends a signal to the first process, and waits about two seconds for its end.
    fn signal_first(&mut self, signal: Signal) {
        let Some(child) = &mut self.child else { return };
        processes::signal(child.id(), signal);
        for _ in 0..LOOKS {
            if !matches!(child.try_wait(), Ok(None)) {
                self.child = None;
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Ends this process and those that it has started, with the name of a server and its test, unless the sender is dropped in
/// time.
#[allow(clippy::exit, reason = "a test that hangs cannot be ended alone")]
fn watch(name: String) -> Sender<()> {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(LIFE) == Err(RecvTimeoutError::Timeout) {
            // Not captured, as output of a test is.
            let _ = writeln!(stderr(), "{name} still runs after {LIFE:?}: the test hangs");
            for id in processes::ids(process::id()).into_iter().skip(1) {
                processes::signal(id, Signal::KILL);
            }
            process::exit(101);
        }
    });
    sender
}
