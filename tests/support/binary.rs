//! Programs under test. `IFMATCH_BIN` sets the path of `ifmatch`. Otherwise it is built once per test process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Prefix of the variables that cargo sets for a package.
const OF_PACKAGE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// The path of the `ifmatch` binary.
pub(crate) fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let built = || build(&["--package", "ifmatch-gateway", "--bin", "ifmatch", "--profile", &profile()]);
    PATH.get_or_init(|| std::env::var_os("IFMATCH_BIN").map_or_else(built, PathBuf::from))
}

/// Builds the program selected by these cargo arguments, and returns its path.
pub fn build(args: &[&str]) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Variables of the test's own package. Some build scripts would rerun because of them.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    let output = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--message-format", "json-render-diagnostics"])
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{args:?} does not build: {}", output.status);
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    messages.lines().find_map(executable).expect("cargo names the program that it built")
}

fn is_of_package(name: &OsStr) -> bool {
    OF_PACKAGE.iter().any(|of| name.as_encoded_bytes().starts_with(of.as_bytes()))
}

/// The path in cargo's message about the finished program.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

/// The profile that this program was built with: it lies in `target/<profile's folder>`, and a test in `deps` below.
fn profile() -> String {
    let program = std::env::current_exe().expect("a process knows its file");
    let mut folders = program.ancestors().skip(1).filter_map(Path::file_name);
    let folder = folders.find(|name| *name != "deps").unwrap_or_default();
    match folder.to_str() {
        None | Some("debug") => "dev".to_owned(),
        Some(profile) => profile.to_owned(),
    }
}
