//! Windows and macOS: the compiler checks both, and the black-box suite runs against the Windows binary under Wine.
//!
//! Their standard library is built from its sources, so this needs no other toolchain.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Run;
use crate::step::{Context, Tool};
use crate::{Result, listening, sdk};

const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MACOS: &str = "aarch64-apple-darwin";

/// A C compiler for Windows.
pub(crate) const MINGW: Tool = Tool {
    name: "MinGW",
    probe: &["x86_64-w64-mingw32-gcc", "--version"],
    install: "apt-get install gcc-mingw-w64-x86-64",
};
/// The sources of the standard library of the toolchain that runs this task.
pub(crate) const SOURCES: Tool = Tool {
    name: "the source of Rust's standard library",
    probe: &[
        "sh",
        "-c",
        "test -d \"$(rustc --print sysroot)/lib/rustlib/src/rust/library\"",
    ],
    install: "rustup component add rust-src",
};
/// Runs programs for Windows.
pub(crate) const WINE: Tool = Tool {
    name: "Wine",
    probe: &["wine", "--version"],
    install: "apt-get install wine wine64",
};

/// The layer, the cache, the client, the registers and the gateway, with what they use.
const PACKAGES: &str = "--package ifmatch --package ifmatch-cache --package ifmatch-client --package ifmatch-redb \
    --package ifmatch-postgres --package ifmatch-redis --package ifmatch-etcd --package ifmatch-http-register \
    --package ifmatch-gateway --features ifmatch/axum,ifmatch-gateway/full";

/// The packages of the C compiler for macOS.
const REQUIREMENTS: &str = "tests/platforms/requirements.txt";

/// Checks that the packages compile without a warning. Nothing is linked, so this needs no libraries of the systems.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let folder = folder(context)?;
    let python = sdk::python(context, &folder, REQUIREMENTS)?;
    let programs = python
        .parent()
        .ok_or("the virtual environment has no folder of programs")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path)),
    )?;
    cargo(
        context,
        &format!("check --keep-going {PACKAGES} --target {WINDOWS} --target {MACOS}"),
        &folder,
    )
    .env("PATH", path)
    .env(
        "CC_aarch64_apple_darwin",
        context.workspace.root().join("tests/platforms/macos-cc"),
    )
    .env("ZIG_GLOBAL_CACHE_DIR", folder.join("zig"))
    .passes(context.deadline)?;
    context.discard("platforms");
    Ok(())
}

/// Builds the gateway for Windows, and runs the black-box suite on a folder of it under Wine.
pub(crate) fn check_windows(context: &Context<'_>) -> Result {
    let folder = folder(context)?;
    let binary = build(context, &folder)?;
    let data = folder.join("data");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    let (blobs, tables, s3) = (
        listening::free_address()?,
        listening::free_address()?,
        listening::free_address()?,
    );
    let mut running = wine(&binary, &folder)
        .args([
            "serve",
            "--console",
            "off",
            "--listen",
            &blobs.to_string(),
            "--listen-tables",
            &tables.to_string(),
        ])
        .args(["--listen-s3", &s3.to_string(), "--data", "data"])
        .start_with_log(&folder.join("gateway.log"))?;
    listening::wait("the gateway under Wine", blobs, || running.still_runs())?;
    let url = |address| format!("http://{address}");
    Run::cargo("test --locked --test blackbox", context.workspace.root())
        .env("IFMATCH_SERVER", "windows")
        .env("IFMATCH_URL", url(blobs))
        .env("IFMATCH_TABLES_URL", url(tables))
        .env("IFMATCH_S3_URL", url(s3))
        .passes(context.deadline)
}

/// Builds the gateway for Windows, and returns its path.
fn build(context: &Context<'_>, folder: &Path) -> Result<PathBuf> {
    let args =
        format!("build --package ifmatch-gateway --bin ifmatch --features full --target {WINDOWS}");
    cargo(context, &args, folder).passes(context.deadline)?;
    // Debian 12's Wine lacks this library. Programs find it beside them.
    Run::new("x86_64-w64-mingw32-gcc", context.workspace.root())
        .args([
            "-shared",
            "-O1",
            "tests/platforms/bcryptprimitives.c",
            "-ladvapi32",
            "-o",
        ])
        .args([folder
            .join(WINDOWS)
            .join("debug")
            .join("bcryptprimitives.dll")])
        .passes(context.deadline)?;
    Ok(folder.join(WINDOWS).join("debug").join("ifmatch.exe"))
}

/// Returns the command that runs a program for Windows in a folder.
fn wine(binary: &Path, folder: &Path) -> Run {
    Run::new("wine", folder)
        .args([binary])
        .env("WINEPREFIX", folder.join("wine"))
        .env("WINEDEBUG", "-all")
}

/// Returns a command of cargo that also builds the standard library. Its target folder is its own: `RUSTC_BOOTSTRAP` would make cargo
/// run the build scripts of the other steps again.
fn cargo(context: &Context<'_>, args: &str, folder: &Path) -> Run {
    Run::cargo(
        &format!("{args} --locked --quiet"),
        context.workspace.root(),
    )
    .env("RUSTC_BOOTSTRAP", "1")
    .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_unwind")
    .env("CARGO_UNSTABLE_WARNINGS", "true")
    .env("CARGO_BUILD_WARNINGS", "deny")
    .env("CARGO_TARGET_DIR", folder)
}

fn folder(context: &Context<'_>) -> Result<PathBuf> {
    let folder = context.workspace.target().join("platforms");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
