//! Where the binary under test is: `IFMATCH_BIN`, else built once per test process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The path of the `ifmatch` binary.
pub(crate) fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("IFMATCH_BIN").map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--package", "ifmatch-gateway", "--bin", "ifmatch"])
        .args(["--message-format", "json-render-diagnostics", "--profile", &profile()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the ifmatch binary does not build: {}", output.status);
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    messages.lines().find_map(executable).expect("cargo names the binary that it built")
}

/// The path in cargo's message about the finished binary.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

/// The profile that this test was built with: the test lies in `target/<profile's folder>/deps`.
fn profile() -> String {
    let test = std::env::current_exe().expect("a process knows its file");
    let folder = test.parent().and_then(Path::parent).and_then(Path::file_name).unwrap_or_default();
    match folder.to_str() {
        None | Some("debug") => "dev".to_owned(),
        Some(profile) => profile.to_owned(),
    }
}
