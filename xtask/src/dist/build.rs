//! Static binaries: the targets that this machine can build for, and their builds.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
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

/// Flags of the C compiler without which the allocator would contain the time of its build.
const TIMELESS: &str = "-Wno-builtin-macro-redefined -D__DATE__=\"\" -D__TIME__=\"\"";

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

/// Returns the folders of the machine that builds, which the binary must not contain, with names for them that are the
/// same on all machines. A folder may be in an earlier one.
fn folders(
    root: &Path,
    target: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<[(String, &'static str); 3]> {
    let home = variable("CARGO_HOME").filter(|home| !home.is_empty());
    let home = home.or_else(|| Some(format!("{}/.cargo", variable("HOME")?))).ok_or("HOME is not set")?;
    Ok([(root.display().to_string(), "/ifmatch"), (target.display().to_string(), "/target"), (home, "/cargo")])
}

/// Returns a folder whose path a binary contains.
fn folder_in<'a>(binary: &[u8], folders: &'a [(String, &str)]) -> Option<&'a str> {
    let is_in = |folder: &str| {
        let path = format!("{}/", folder.trim_end_matches('/'));
        binary.windows(path.len()).any(|found| found == path.as_bytes())
    };
    folders
        .iter()
        .filter(|(folder, name)| folder != name)
        .map(|(folder, _)| folder.as_str())
        .find(|folder| is_in(folder))
}

impl Target {
    /// Builds the gateway, and returns the path of the binary.
    pub(super) fn build(&self, workspace: &Workspace) -> Result<PathBuf> {
        let root = workspace.root();
        let folders = folders(root, workspace.target(), |name| std::env::var(name).ok())?;
        let remapped = folders.iter().map(|(folder, name)| format!("--remap-path-prefix={folder}={name}"));
        let flags: Vec<String> = std::iter::once("-Ctarget-feature=+crt-static".to_owned()).chain(remapped).collect();
        let triple = self.triple.replace('-', "_");
        let run = Run::cargo("build --locked --package ifmatch-gateway --bin ifmatch", root)
            .args(["--profile", PROFILE, "--target", self.triple])
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env(&format!("CFLAGS_{triple}"), TIMELESS);
        let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase());
        let run = if self.is_native() { run } else { run.env(&linker, self.compiler) };
        run.passes(Instant::now() + BUILD)?;
        let binary = workspace.target().join(self.triple).join(PROFILE).join("ifmatch");
        match folder_in(&fs::read(&binary)?, &folders) {
            Some(folder) => Err(format!("{} contains the path {folder}", binary.display()).into()),
            None => Ok(binary),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn on(home: Option<&str>) -> Result<[(String, &'static str); 3]> {
        let variable = |name: &str| match name {
            "CARGO_HOME" => home.map(str::to_owned),
            _ => Some("/home/me".to_owned()),
        };
        folders(Path::new("/src/ifmatch"), Path::new("/tmp/target"), variable)
    }

    #[test]
    fn the_folders_of_a_machine_have_the_same_names_everywhere() {
        for (home, expected) in [(None, "/home/me/.cargo"), (Some(""), "/home/me/.cargo"), (Some("/cargo"), "/cargo")] {
            let found = on(home).unwrap();
            let found = found.each_ref().map(|(folder, name)| (folder.as_str(), *name));
            assert_eq!(found, [("/src/ifmatch", "/ifmatch"), ("/tmp/target", "/target"), (expected, "/cargo")]);
        }
        assert!(folders(Path::new("/"), Path::new("/"), |_| None).is_err());
    }

    #[test]
    fn a_path_of_the_machine_in_a_binary_is_found() {
        let folders = on(None).unwrap();
        assert_eq!(folder_in(b"\0/home/me/.cargo/registry/a.c\0", &folders), Some("/home/me/.cargo"));
        let names = b"\0/cargo/registry/a.rs\0/src/ifmatch2/b.rs\0";
        assert_eq!(folder_in(names, &folders), None);
        assert_eq!(folder_in(names, &on(Some("/cargo")).unwrap()), None, "a folder with the name");
    }

    /// As a compiler of C sees the flags, which are split at spaces.
    #[test]
    fn the_time_of_a_build_is_not_in_the_binary() {
        let program = "const char *built = \"built on \" __DATE__ __TIME__;\n";
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("built.c"), program).unwrap();
        let flags = TIMELESS.split(' ').chain(["-Werror", "-S", "-o-", "built.c"]);
        let assembly = Run::new("cc", folder.path()).args(flags).output().unwrap();
        assert!(assembly.contains("\"built on \""), "{assembly}");
    }
}
