//! Optimised builds of the measured and measuring programs, and the benchmarks that only run one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use statistics::spread;
use xtask::command::{Run, executable};
use xtask::step::{Context, Tool};
use xtask::workspace::Workspace;
use xtask::{Result, npm, sdk};

/// Returns the gateway that `IFMATCH_BIN` names, or builds it.
pub(crate) fn gateway(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("IFMATCH_BIN") {
        return Ok(named.into());
    }
    build(
        workspace,
        "--package ifmatch-gateway --bin ifmatch --features full",
    )
}

/// Builds the services of benches/server.
pub(crate) fn server(workspace: &Workspace) -> Result<PathBuf> {
    program(workspace, "server")
}

/// Builds the clients of benches/client.
fn client_program(workspace: &Workspace) -> Result<PathBuf> {
    program(workspace, "client")
}

/// Builds the clients of benches/leases.
pub(crate) fn leases(workspace: &Workspace) -> Result<PathBuf> {
    program(workspace, "leases")
}

/// Builds the clients of benches/s3.
pub(crate) fn s3(workspace: &Workspace) -> Result<PathBuf> {
    program(workspace, "s3")
}

/// Builds the proxy of benches/pingora, a separate workspace.
pub(crate) fn pingora(workspace: &Workspace) -> Result<PathBuf> {
    build(
        workspace,
        "--manifest-path benches/pingora/Cargo.toml --target-dir target/pingora",
    )
}

/// Builds and runs benches/growth.
pub(crate) fn growth(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    let program = program(workspace, "growth")?;
    Run::new(program, workspace.root())
        .args(quick.then_some("--quick"))
        .passes(deadline)
}

/// Builds and runs benches/hit_ratio.rs.
pub(crate) fn hits(workspace: &Workspace, deadline: Instant) -> Result {
    let program = program(workspace, "hit-ratio")?;
    Run::new(program, workspace.root()).passes(deadline)
}

/// Builds and runs the benchmark of the shared registers.
pub(crate) fn registers(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    let program = program(workspace, "registers")?;
    Run::new(program, workspace.root())
        .args(["bench"])
        .args(quick.then_some("--quick"))
        .passes(deadline)
}

const VALGRIND: Tool = Tool {
    name: "valgrind",
    probe: &["valgrind", "--version"],
    install: "apt-get install -y valgrind",
};

/// Builds the services of benches/layer.
pub(crate) fn layer(workspace: &Workspace) -> Result<PathBuf> {
    VALGRIND.require(workspace)?;
    let build = "build --release --locked --quiet --manifest-path benches/Cargo.toml --target-dir target/benches-layer \
        --package bench-layer --message-format json-render-diagnostics";
    let messages = Run::cargo(build, workspace.root())
        .env("RUSTFLAGS", CLOCK_FOR_VALGRIND)
        .output()?;
    executable(&messages).ok_or_else(|| "cargo does not say where it put benches/layer".into())
}

/// rustix reads the clock through the vDSO otherwise, which valgrind doesn't have.
const CLOCK_FOR_VALGRIND: &str = "--cfg rustix_use_libc";

/// Runs the benchmarks of functions: instructions by valgrind, nanoseconds by criterion, and hashing compared with OpenSSL. A quick
/// run skips the slow ones.
pub(crate) fn functions(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    VALGRIND.require(workspace)?;
    require_runner(workspace.root())?;
    let benches =
        "bench --locked --manifest-path benches/Cargo.toml --target-dir target/benches --bench";
    let bench = |name| Run::cargo(&format!("{benches} {name}"), workspace.root());
    bench("instructions")
        .env("RUSTFLAGS", CLOCK_FOR_VALGRIND)
        .passes(deadline)?;
    if quick {
        return Ok(());
    }
    bench("time").passes(deadline)?;
    Run::new(program(workspace, "hashing")?, workspace.root()).passes(deadline)
}

/// The library for instruction counts works only with the runner of the same version.
fn require_runner(root: &Path) -> Result {
    let id = Run::cargo(
        "pkgid --locked --manifest-path benches/Cargo.toml gungraun",
        root,
    )
    .output()?;
    let version = id.trim().rsplit(['@', '#']).next().unwrap_or_default();
    let installed = Run::new("gungraun-runner", root)
        .args(["--version"])
        .output()
        .unwrap_or_default();
    if installed.trim().ends_with(version) {
        return Ok(());
    }
    Err(format!("gungraun-runner {version} is needed: cargo install --locked gungraun-runner --version {version}")
        .into())
}

/// Builds and runs benches/contention.
pub(crate) fn contention(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    CONTENTION_TOOLS
        .iter()
        .try_for_each(|tool| tool.require(workspace))?;
    npm::require(workspace, npm::AZURITE, deadline)?;
    let (gateway, program) = (gateway(workspace)?, program(workspace, "contention")?);
    Run::new(program, workspace.root())
        .args([gateway])
        .args(quick.then_some("--quick"))
        .passes(deadline)
}

const ETCD: Tool = Tool {
    name: "etcd",
    probe: &["etcd", "--version"],
    install: "apt-get install etcd-server",
};

const CONTENTION_TOOLS: &[Tool] = &[
    ETCD,
    Tool {
        name: "Redis",
        probe: &["redis-server", "--version"],
        install: "apt-get install redis-server",
    },
];

const CLIENT_TOOLS: &[Tool] = &[
    sdk::PYTHON,
    ETCD,
    Tool {
        name: "etcdctl",
        probe: &["etcdctl", "version"],
        install: "apt-get install etcd-client",
    },
];

/// Builds and runs benches/client: the client toolkit compared with Azure's SDK for Python and with etcd.
pub(crate) fn client(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    CLIENT_TOOLS
        .iter()
        .try_for_each(|tool| tool.require(workspace))?;
    let (_, python) = sdk::clients(&Context {
        workspace,
        deadline,
    })?;
    let (gateway, program) = (gateway(workspace)?, client_program(workspace)?);
    Run::new(program, workspace.root())
        .args([gateway, python])
        .args(quick.then_some("--quick"))
        .passes(deadline)
}

/// Builds the Worker, and measures it with wasm/bench beside others on the same runtime.
pub(crate) fn worker(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    let modules = xtask::worker::build(workspace, deadline)?;
    for folder in [npm::MINIFLARE, npm::JS] {
        npm::require(workspace, folder, deadline)?;
    }
    let bench = |script: &str| {
        Run::new("node", workspace.root())
            .args([script, "--modules"])
            .args([&modules])
    };
    let requests = bench("wasm/bench/bench.mjs");
    let requests = if quick {
        requests.args(["--quick"])
    } else {
        requests
    };
    requests.passes(deadline)?;
    start_up(workspace, &modules, if quick { 1 } else { 11 })
}

/// Prints the CPU time of a start, as Wrangler measures it before a deployment.
fn start_up(workspace: &Workspace, modules: &Path, rounds: u32) -> Result {
    let times = (0..rounds)
        .map(|_| xtask::worker::start_up(workspace, modules))
        .collect::<Result<Vec<_>>>()?;
    println!("| start-up | {} ms active |", spread(times, 1));
    Ok(())
}

/// Builds a program of benches in release mode, and returns its path.
fn program(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    build(
        workspace,
        &format!("--manifest-path benches/Cargo.toml --target-dir target/benches --bin {name}"),
    )
}

/// Builds a program in release mode, and returns its path.
fn build(workspace: &Workspace, what: &str) -> Result<PathBuf> {
    println!("building {what}");
    let args =
        format!("build --release --locked --quiet {what} --message-format json-render-diagnostics");
    let messages = Run::cargo(&args, workspace.root()).output()?;
    executable(&messages).ok_or_else(|| format!("cargo does not say where it put {what}").into())
}
