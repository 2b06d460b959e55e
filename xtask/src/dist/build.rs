//! Static binaries: the targets that this machine can build for, and their builds.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;

/// Time limit of a build.
const BUILD: Duration = Duration::from_hours(1);

/// The profile in Cargo.toml.
const PROFILE: &str = "portable";

/// A target of the Rust compiler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Target {
    /// Triple.
    pub triple: &'static str,
    /// Debian's and Go's name of the architecture.
    pub architecture: &'static str,
    /// C compiler, which also links.
    compiler: &'static str,
    /// Command that installs the compiler.
    install: &'static str,
}

/// Targets by the name of the architecture in Rust. The preferred one comes first.
const TARGETS: [(&str, [Target; 2]); 2] = [
    (
        "x86_64",
        [
            Target {
                triple: "x86_64-unknown-linux-musl",
                architecture: "amd64",
                compiler: "musl-gcc",
                install: "apt-get install musl-tools",
            },
            Target {
                triple: "x86_64-unknown-linux-gnu",
                architecture: "amd64",
                compiler: "x86_64-linux-gnu-gcc",
                install: "apt-get install gcc-x86-64-linux-gnu",
            },
        ],
    ),
    (
        "aarch64",
        [
            Target {
                triple: "aarch64-unknown-linux-musl",
                architecture: "arm64",
                compiler: "aarch64-linux-musl-gcc",
                install: "a cross compiler for musl",
            },
            Target {
                triple: "aarch64-unknown-linux-gnu",
                architecture: "arm64",
                compiler: "aarch64-linux-gnu-gcc",
                install: "apt-get install gcc-aarch64-linux-gnu",
            },
        ],
    ),
];

/// Returns the targets to build for, this machine's first. Prints what the others lack.
pub(super) fn targets(workspace: &Workspace) -> Result<Vec<Target>> {
    let (mut own, others): (Vec<_>, Vec<_>) =
        TARGETS.iter().partition(|(architecture, _)| *architecture == std::env::consts::ARCH);
    own.extend(others);
    let mut found = Vec::new();
    for (architecture, candidates) in own {
        let lacks = candidates.map(|target| target.lacks(workspace));
        if let Some((target, _)) = candidates.iter().zip(&lacks).find(|(_, lacks)| lacks.is_none()) {
            let [preferred, ..] = &lacks;
            let reason = preferred.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            println!("{architecture}: {}{reason}", target.shown());
            found.push(*target);
        } else {
            let reasons: Vec<String> = lacks.into_iter().flatten().collect();
            println!("{architecture}: left out ({})", reasons.join("; "));
        }
    }
    if found.is_empty() { Err("this machine can build for no target".into()) } else { Ok(found) }
}

impl Target {
    /// Builds the gateway, and returns the path of the binary.
    pub(super) fn build(&self, workspace: &Workspace) -> Result<PathBuf> {
        let root = workspace.root();
        let home =
            std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))?;
        // The binary must not depend on the folders of the machine that builds it.
        let flags = [
            "-Ctarget-feature=+crt-static".to_owned(),
            format!("--remap-path-prefix={}=/ifmatch", root.display()),
            format!("--remap-path-prefix={home}=/cargo"),
        ];
        let linker = format!("CARGO_TARGET_{}_LINKER", self.triple.to_uppercase().replace('-', "_"));
        let run = Run::cargo("build --locked --package ifmatch-gateway --bin ifmatch", root)
            .args(["--profile", PROFILE, "--target", self.triple])
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        let run = if self.is_native() { run } else { run.env(&linker, self.compiler) };
        run.passes(Instant::now() + BUILD)?;
        Ok(workspace.target().join(self.triple).join(PROFILE).join("ifmatch"))
    }

    /// Returns a target for packages without a real binary.
    #[cfg(test)]
    pub(super) const fn for_tests() -> Self {
        let [(_, [target, _]), _] = TARGETS;
        target
    }

    /// Returns `true` if this machine can run the binary.
    pub(super) fn is_native(&self) -> bool {
        self.triple.starts_with(std::env::consts::ARCH)
    }

    /// Returns the target and its C library, for messages.
    fn shown(&self) -> String {
        let library = if self.triple.ends_with("musl") { "musl" } else { "glibc" };
        format!("{}, static {library}", self.triple)
    }

    /// Returns the first thing that a build needs and this machine lacks.
    fn lacks(&self, workspace: &Workspace) -> Option<String> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let succeeds = |program: &OsStr, args: &[&str]| Run::new(program, workspace.root()).args(args).output();
        let folder = succeeds(&rustc, &["--print", "target-libdir", "--target", self.triple]).unwrap_or_default();
        if !PathBuf::from(folder.trim()).is_dir() {
            return Some(format!("no {0}: rustup target add {0}", self.triple));
        }
        let links = (self.is_native() && self.triple.ends_with("gnu"))
            || succeeds(self.compiler.as_ref(), &["--version"]).is_ok();
        (!links).then(|| format!("no {}: {}", self.compiler, self.install))
    }
}
