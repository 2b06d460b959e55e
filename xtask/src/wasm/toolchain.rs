//! A toolchain that builds WebAssembly with a standard library of its own, built from its sources.
//!
//! The target's precompiled library aborts on panic, which would end all requests that a Worker is serving.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::command::Run;
use crate::step::Tool;
use crate::workspace::Workspace;

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

/// What loads a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// A JavaScript runtime. Panics unwind.
    JavaScript,
    /// A host of components. A panic ends the instance, as every trap does.
    Components,
}

impl Host {
    /// Cargo's profile of the builds.
    pub(super) fn profile(self) -> &'static str {
        match self {
            Self::JavaScript => "worker",
            Self::Components => "component",
        }
    }

    fn panic(self) -> &'static str {
        match self {
            Self::JavaScript => "unwind",
            Self::Components => "abort",
        }
    }

    fn std_features(self) -> &'static str {
        match self {
            Self::JavaScript => "panic-unwind,optimize_for_size",
            Self::Components => "",
        }
    }
}

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
        let Some((program, args)) = PROBE.split_first() else {
            return Ok(Self::Own);
        };
        let found = Run::new(program, workspace.root()).args(args).output()?;
        Ok(match found.trim() {
            "" => Self::Own,
            programs => Self::Other(programs.into()),
        })
    }

    /// Returns the command that builds a library of the workspace in `dir`. `args` select it.
    pub(super) fn build(&self, dir: &Path, args: &str, host: Host, target: &Path) -> Result<Run> {
        // Only this type: libraries of Rust would exclude link-time optimisation.
        let profile = host.profile();
        let args =
            format!("rustc {args} --lib --crate-type cdylib --profile {profile} --target {TARGET}");
        let run = self.cargo(dir, &args, host, SMALL, target)?;
        // The profile of this workspace, for others as well.
        Ok(run
            .env("CARGO_PROFILE_WORKER_INHERITS", "release")
            .env("CARGO_PROFILE_WORKER_OPT_LEVEL", "z")
            .env("CARGO_PROFILE_WORKER_PANIC", "unwind"))
    }

    /// Returns the command that builds tests of a package with the harness in wasm/harness, and prints their paths.
    pub(super) fn build_tests(
        &self,
        workspace: &Workspace,
        package: &str,
        which: &str,
        target: &Path,
    ) -> Result<Run> {
        let args = format!(
            "rustc --locked --quiet --package {package} {which} --profile test --target {TARGET} \
             --message-format json-render-diagnostics -- \
             -Zcrate-attr=feature(custom_test_frameworks) -Zcrate-attr=test_runner(wasm_harness::run)"
        );
        self.cargo(workspace.root(), &args, Host::JavaScript, "", target)
    }

    fn cargo(&self, dir: &Path, args: &str, host: Host, flags: &str, target: &Path) -> Result<Run> {
        let run = match self {
            Self::Own => Run::cargo(args, dir),
            Self::Other(programs) => other(programs, args, dir)?,
        };
        let panic = host.panic();
        Ok(run
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_UNSTABLE_BUILD_STD", format!("std,panic_{panic}"))
            .env("CARGO_UNSTABLE_BUILD_STD_FEATURES", host.std_features())
            // Keeps the builder's folders out of panic messages.
            .env("CARGO_UNSTABLE_TRIM_PATHS", "true")
            .env(
                &format!("CARGO_PROFILE_{}_TRIM_PATHS", host.profile().to_uppercase()),
                "all",
            )
            .env(
                "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS",
                format!("-Cpanic={panic} {flags}"),
            )
            .env("CARGO_TARGET_DIR", target))
    }
}

/// Runs another toolchain's cargo, without the variables that would select this task's toolchain.
fn other(programs: &Path, args: &str, dir: &Path) -> Result<Run> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path)),
    )?;
    let run = Run::new(programs.join("cargo"), dir)
        .args(args.split_whitespace())
        .env("PATH", path)
        .env("RUSTC", programs.join("rustc"));
    let inherited = [
        "RUSTUP_TOOLCHAIN",
        "CARGO",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
    ];
    Ok(inherited.into_iter().fold(run, Run::without))
}
