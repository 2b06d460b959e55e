//! Runs the suites in tests/sdk: Azure's official clients for Python and JavaScript against the gateway, the Worker and Azurite;
//! S3's client for Python, and programs for backups and data, against the gateway.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::command::{Run, Running};
use crate::step::{Context, Tool};
use crate::worker::Served;
use crate::{listening, npm};

/// The development account, as in `UseDevelopmentStorage=true`.
pub const ACCOUNT: &str = "devstoreaccount1";
/// Its key, which Azure publishes.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Python, for virtual environments.
pub const PYTHON: Tool = Tool {
    name: "Python with venv",
    probe: &["python3", "-c", "import ensurepip, venv"],
    install: "apt-get install python3-venv",
};

/// The packages of the suite for Python.
const REQUIREMENTS: &str = "tests/sdk/python/requirements.txt";
/// The packages of the suite of data programs.
const PROGRAMS: &str = "tests/sdk/programs/requirements.txt";

/// A blob service and a table service on free ports, stopped on drop.
pub struct Server {
    name: &'static str,
    /// Address of the blobs.
    pub blobs: SocketAddr,
    tables: SocketAddr,
    /// Address for S3 clients, if the server has one.
    s3: Option<SocketAddr>,
    /// File of the cases that are known to fail.
    known_errors: PathBuf,
    /// `true` if the server keeps idle connections open.
    keep_alive: bool,
    /// Its processes.
    pub running: Vec<Running>,
}

/// Runs both suites against the gateway, and the programs against the gateway with both kinds of stores.
pub(crate) fn check(context: &Context<'_>, gateway: &Path) -> Result {
    let (dir, python) = clients(context)?;
    let server = start_gateway(context, gateway, &dir)?;
    server.suites(context, &python, &dir)?;
    let on_objects = start_gateway_on_objects(gateway, &dir)?;
    let programs = dir.join("programs");
    fs::create_dir_all(&programs)?;
    let programs = self::python(context, &programs, PROGRAMS)?;
    for server in [&server, &on_objects] {
        server.suite(
            context,
            &dir,
            "programs",
            programs.as_os_str(),
            &["-m", "pytest"],
        )?;
    }
    Ok(())
}

/// Runs both suites against Azurite, which validates them.
pub(crate) fn check_azurite(context: &Context<'_>) -> Result {
    let (dir, python) = clients(context)?;
    start_azurite(context, &dir)?.suites(context, &python, &dir)
}

/// Runs both suites against the Worker with its modules in `folder`.
pub(crate) fn check_worker(context: &Context<'_>, folder: &Path) -> Result {
    let (dir, python) = clients(context)?;
    start_worker(context, folder, &dir)?.suites(context, &python, &dir)
}

/// Installs the official Azure clients. Returns the folder for logs and data, and the Python that has them.
pub fn clients(context: &Context<'_>) -> Result<(PathBuf, PathBuf)> {
    let dir = context.workspace.target().join("sdk");
    fs::create_dir_all(&dir)?;
    let python = python(context, &dir, REQUIREMENTS)?;
    npm::require(context.workspace, npm::CLIENTS, context.deadline)?;
    Ok((dir, python))
}

/// Creates a virtual environment in `dir` with exactly the packages in a file of the repository.
pub fn python(context: &Context<'_>, dir: &Path, requirements: &str) -> Result<PathBuf> {
    let python = dir.join("venv/bin/python");
    if !python.exists() {
        Run::new("python3", dir)
            .args(["-m", "venv", "venv"])
            .passes(context.deadline)?;
    }
    let requirements = context.workspace.root().join(requirements);
    Run::new(&python, dir)
        .args([
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--no-deps",
            "--requirement",
        ])
        .args([requirements])
        .passes(context.deadline)?;
    Ok(python)
}

fn start_gateway(context: &Context<'_>, binary: &Path, dir: &Path) -> Result<Server> {
    let data = dir.join("data");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    let (blobs, tables) = (listening::free_address()?, listening::free_address()?);
    let s3 = listening::free_address()?;
    let running = Run::new(binary, dir)
        .args([
            "serve",
            "--listen",
            &blobs.to_string(),
            "--listen-tables",
            &tables.to_string(),
        ])
        .args(["--listen-s3", &s3.to_string(), "--data"])
        .args([data])
        .start()?;
    let known_errors = known_errors(context, "gateway");
    Server {
        name: "gateway",
        blobs,
        tables,
        s3: Some(s3),
        known_errors,
        keep_alive: true,
        running: vec![running],
    }
    .listening()
}

/// Starts a gateway on an object store. It has no tables: their address is the blobs' too.
fn start_gateway_on_objects(binary: &Path, dir: &Path) -> Result<Server> {
    let (blobs, s3) = (listening::free_address()?, listening::free_address()?);
    let mut running = Run::new(binary, dir)
        .args([
            "serve",
            "--listen",
            &blobs.to_string(),
            "--listen-s3",
            &s3.to_string(),
            "--store",
            "memory:///",
        ])
        .start()?;
    listening::wait("gateway", blobs, || running.still_runs())?;
    let name = "gateway on objects";
    Ok(Server {
        name,
        blobs,
        tables: blobs,
        s3: Some(s3),
        known_errors: PathBuf::new(),
        keep_alive: true,
        running: vec![running],
    })
}

fn start_worker(context: &Context<'_>, folder: &Path, dir: &Path) -> Result<Server> {
    let Served {
        blobs,
        tables,
        running,
    } = Served::start(context, folder, &dir.join("Worker.log"))?;
    let known_errors = known_errors(context, "worker");
    Ok(Server {
        name: "Worker",
        blobs,
        tables,
        s3: None,
        known_errors,
        keep_alive: false,
        running: vec![running],
    })
}

/// Starts Azurite with everything in memory.
pub fn start_azurite(context: &Context<'_>, dir: &Path) -> Result<Server> {
    npm::require(context.workspace, npm::AZURITE, context.deadline)?;
    let programs = context
        .workspace
        .root()
        .join(npm::AZURITE)
        .join("node_modules/azurite/dist/src");
    let start = |service: &str, address: SocketAddr| {
        Run::new("node", dir)
            .args([programs.join(service).join("main.js")])
            .args([format!("--{service}Port"), address.port().to_string()])
            .args([
                "--inMemoryPersistence",
                "--skipApiVersionCheck",
                "--disableTelemetry",
                "--silent",
            ])
            .start()
    };
    let (blobs, tables) = (listening::free_address()?, listening::free_address()?);
    let running = vec![start("blob", blobs)?, start("table", tables)?];
    let known_errors = known_errors(context, "azurite");
    Server {
        name: "Azurite",
        blobs,
        tables,
        s3: None,
        known_errors,
        keep_alive: true,
        running,
    }
    .listening()
}

/// Returns the file of a server's known failures.
fn known_errors(context: &Context<'_>, server: &str) -> PathBuf {
    context
        .workspace
        .root()
        .join("tests/sdk")
        .join(server)
        .with_extension("json")
}

impl Server {
    /// Waits until the services listen. Each is served by one of the processes, and none of them may end.
    fn listening(mut self) -> Result<Self> {
        let addresses = [Some(self.blobs), Some(self.tables), self.s3];
        for address in addresses.into_iter().flatten() {
            listening::wait(self.name, address, || {
                self.running.iter_mut().try_for_each(Running::still_runs)
            })?;
        }
        Ok(self)
    }

    /// Runs both suites at the same time. Each prints its output when it ends.
    fn suites(&self, context: &Context<'_>, python: &Path, dir: &Path) -> Result {
        std::thread::scope(|scope| {
            let reporter = ["--test", "--test-reporter=./reporter.js", "suite.js"];
            let javascript = scope
                .spawn(move || self.suite(context, dir, "javascript", "node".as_ref(), &reporter));
            let python = self.suite(
                context,
                dir,
                "python",
                python.as_os_str(),
                &["-m", "pytest"],
            );
            let javascript = javascript
                .join()
                .map_err(|_| "the thread of the suite ended early")?;
            Ok(python.and(javascript)?)
        })
    }

    /// Runs the suite in a folder of tests/sdk, and prints its output.
    fn suite(
        &self,
        context: &Context<'_>,
        dir: &Path,
        name: &str,
        program: &OsStr,
        args: &[&str],
    ) -> std::result::Result<(), String> {
        let log = dir.join(format!("{}-{name}.log", self.name));
        let run = Run::new(
            program,
            &context.workspace.root().join("tests/sdk").join(name),
        )
        .args(args);
        let run = self
            .describe(run)
            .log_to(&log)
            .map_err(|error| error.to_string())?;
        let done = run
            .passes(context.deadline)
            .map_err(|error| format!("{}: {error}", self.name));
        println!(
            "\n-- {}, {name}\n{}",
            self.name,
            fs::read_to_string(&log).unwrap_or_default()
        );
        done
    }

    /// Passes the server's addresses to a suite.
    fn describe(&self, run: Run) -> Run {
        run.env("IFMATCH_SDK_BLOB", connection_string("Blob", self.blobs))
            .env("IFMATCH_SDK_TABLE", connection_string("Table", self.tables))
            .env("IFMATCH_SDK_KNOWN_ERRORS", &self.known_errors)
            .env(
                "IFMATCH_SDK_S3",
                self.s3.map(|s3| format!("http://{s3}")).unwrap_or_default(),
            )
            .env(
                "IFMATCH_SDK_KEEP_ALIVE",
                if self.keep_alive { "on" } else { "off" },
            )
    }
}

/// Returns a connection string for the clients.
fn connection_string(service: &str, address: SocketAddr) -> String {
    let endpoint = format!("{service}Endpoint=http://{address}/{ACCOUNT}");
    format!("DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};{endpoint};")
}
