//! A toolchain that builds WebAssembly with unwinding panics.
//!
//! The target's precompiled standard library aborts on panic, which would end all requests that a Worker is serving. So the
//! library is built from its sources.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::command::Run;
use crate::step::Tool;
use crate::workspace::Workspace;

/// Cargo profile of the builds.
pub(super) const PROFILE: &str = "worker";
pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// Prints the folder of a suitable toolchain's programs, or an empty line for the toolchain that runs this task.
const PROBE: &[&str] = &[
    "sh",
    "-c",
    "sources=lib/rustlib/src/rust/library; \
     if test -d \"$(rustc --print sysroot)/$sources\"; then echo; \
     elif test -d /usr/$sources && test -x /usr/bin/cargo; then echo /usr/bin; \
     else exit 1; fi",
];
/// A toolchain with the sources of the standard library.
pub const TOOLCHAIN: Tool = Tool {
    name: "the source of Rust's standard library (`rustup component add rust-src`, or Debian's packages)",
    probe: PROBE,
    install: "apt-get install rustc-web cargo-web rust-web-src rust-web-llvm lld-22",
};

/// Makes panics unwind.
const FLAGS: &str = "-Cpanic=unwind";
/// Reduces derived `Debug` output to names, for size.
const SMALL: &str = "-Zfmt-debug=shallow";

/// A toolchain that has the sources of the standard library.
pub(super) enum Toolchain {
    /// The toolchain that runs this task.
    Own,
    /// Another toolchain, with the folder of its programs.
    Other(PathBuf),
}

impl Toolchain {
    /// Finds a toolchain, or offers to install one.
    pub(super) fn find(workspace: &Workspace) -> Result<Self> {
        TOOLCHAIN.require(workspace)?;
        let Some((program, args)) = PROBE.split_first() else { return Ok(Self::Own) };
        let found = Run::new(program, workspace.root()).args(args).output()?;
        Ok(match found.trim() {
            "" => Self::Own,
            programs => Self::Other(programs.into()),
        })
    }

    /// Returns the command that builds a library of the workspace in `dir`. `args` select it.
    pub(super) fn build(&self, dir: &Path, args: &str, target: &Path) -> Result<Run> {
        // Only this type: libraries of Rust would exclude link-time optimisation.
        let args = format!("rustc {args} --lib --crate-type cdylib --profile {PROFILE} --target {TARGET}");
        let run = self.cargo(dir, &args, &format!("{FLAGS} {SMALL}"), target)?;
        // The profile of this workspace, for others as well.
        Ok(run
            .env("CARGO_PROFILE_WORKER_INHERITS", "release")
            .env("CARGO_PROFILE_WORKER_OPT_LEVEL", "z")
            .env("CARGO_PROFILE_WORKER_PANIC", "unwind"))
    }

    /// Returns the command that builds tests of a package with the harness in wasm/harness, and prints their paths.
    pub(super) fn build_tests(&self, workspace: &Workspace, package: &str, which: &str, target: &Path) -> Result<Run> {
        let args = format!(
            "rustc --locked --quiet --package {package} {which} --profile test --target {TARGET} \
             --message-format json-render-diagnostics -- \
             -Zcrate-attr=feature(custom_test_frameworks) -Zcrate-attr=test_runner(wasm_harness::run)"
        );
        self.cargo(workspace.root(), &args, FLAGS, target)
    }

    fn cargo(&self, dir: &Path, args: &str, flags: &str, target: &Path) -> Result<Run> {
        let run = match self {
            Self::Own => Run::cargo(args, dir),
            Self::Other(programs) => other(programs, args, dir)?,
        };
        Ok(run
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_unwind")
            .env("CARGO_UNSTABLE_BUILD_STD_FEATURES", "panic-unwind,optimize_for_size")
            // Keeps the builder's folders out of panic messages.
            .env("CARGO_UNSTABLE_TRIM_PATHS", "true")
            .env("CARGO_PROFILE_WORKER_TRIM_PATHS", "all")
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", target))
    }
}

/// Runs another toolchain's cargo, without the variables that would select this task's toolchain.
fn other(programs: &Path, args: &str, dir: &Path) -> Result<Run> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path)))?;
    let run = Run::new(programs.join("cargo"), dir)
        .args(args.split_whitespace())
        .env("PATH", path)
        .env("RUSTC", programs.join("rustc"));
    let inherited = ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
    Ok(inherited.into_iter().fold(run, Run::without))
}
