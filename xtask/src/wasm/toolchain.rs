//! A toolchain that builds for WebAssembly such that a panic can be caught.
//!
//! The standard library that comes with the target aborts at a panic, which ends all requests of a Worker that are under
//! way. So the library is built too, from its sources.

use std::path::{Path, PathBuf};

use super::{PROFILE, TARGET};
use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;

/// Succeeds where there is a toolchain, and says in which folder its programs are: in none if it is the one that runs this
/// task, in Debian's otherwise.
pub(crate) const PROBE: &[&str] = &[
    "sh",
    "-c",
    "sources=lib/rustlib/src/rust/library; \
     if test -d \"$(rustc --print sysroot)/$sources\"; then echo; \
     elif test -d /usr/$sources && test -x /usr/bin/cargo; then echo /usr/bin; \
     else exit 1; fi",
];
/// Installs Debian's.
pub(crate) const INSTALL: &str = "apt-get install rustc-web cargo-web rust-web-src rust-web-llvm lld-22";

/// A panic unwinds.
const FLAGS: &str = "-Cpanic=unwind";
/// A derived `Debug` writes the name of the variant alone, for the sake of the size.
const SMALL: &str = "-Zfmt-debug=shallow";

/// A toolchain that has the sources of the standard library.
pub(super) enum Toolchain {
    /// The one that runs this task.
    Own,
    /// Another one, with the folder of its programs.
    Other(PathBuf),
}

impl Toolchain {
    /// The first that there is.
    pub(super) fn find(workspace: &Workspace) -> Result<Self> {
        let Some((program, args)) = PROBE.split_first() else { return Ok(Self::Own) };
        let found = Run::new(program, workspace.root()).args(args).output().map_err(|_| {
            let what = "the sources of the standard library are needed to build for WebAssembly";
            format!("{what}. Install them with: rustup component add rust-src; or, on Debian: {INSTALL}")
        })?;
        Ok(match found.trim() {
            "" => Self::Own,
            programs => Self::Other(programs.into()),
        })
    }

    /// The command that builds a package's library.
    pub(super) fn build(&self, workspace: &Workspace, package: &str, target: &Path) -> Result<Run> {
        let args = format!("build --locked --package {package} --lib --profile {PROFILE} --target {TARGET}");
        self.cargo(workspace, &args, &format!("{FLAGS} {SMALL}"), target)
    }

    /// The command that builds tests of a package, for the harness in wasm/harness, and says where they are.
    pub(super) fn build_tests(&self, workspace: &Workspace, package: &str, which: &str, target: &Path) -> Result<Run> {
        let args = format!(
            "rustc --locked --quiet --package {package} {which} --profile test --target {TARGET} \
             --message-format json-render-diagnostics -- \
             -Zcrate-attr=feature(custom_test_frameworks) -Zcrate-attr=test_runner(wasm_harness::run)"
        );
        self.cargo(workspace, &args, FLAGS, target)
    }

    fn cargo(&self, workspace: &Workspace, args: &str, flags: &str, target: &Path) -> Result<Run> {
        let run = match self {
            Self::Own => Run::cargo(args, workspace.root()),
            Self::Other(programs) => other(programs, args, workspace)?,
        };
        Ok(run
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_unwind")
            .env("CARGO_UNSTABLE_BUILD_STD_FEATURES", "panic-unwind,optimize_for_size")
            // A panic names a file: without the folders of whoever built it.
            .env("CARGO_UNSTABLE_TRIM_PATHS", "true")
            .env("CARGO_PROFILE_WORKER_TRIM_PATHS", "all")
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", target))
    }
}

/// What this task was started by must not lead the other toolchain back to its own.
fn other(programs: &Path, args: &str, workspace: &Workspace) -> Result<Run> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path)))?;
    let run = Run::new(programs.join("cargo"), workspace.root())
        .args(args.split_whitespace())
        .env("PATH", path)
        .env("RUSTC", programs.join("rustc"));
    let inherited = ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
    Ok(inherited.into_iter().fold(run, Run::without))
}
