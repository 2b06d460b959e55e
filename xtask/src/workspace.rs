//! The workspace, by `cargo metadata`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::Result;
use crate::command::Run;

/// All packages and features, for lints and documentation. With its feature, the harness builds only with the Worker's toolchain.
pub(crate) const SELECTION: &str = "--workspace --exclude wasm-harness --all-features";

/// What needs other programs, and the gateway with all features: what `cargo test` leaves out.
pub(crate) const FULL: &str = "--all-features --package ifmatch-gateway --package ifmatch-servers --package ifmatch-postgres \
     --package ifmatch-redis --package ifmatch-etcd --package ifmatch-testbed --package ifmatch-examples --package ifmatch-workspace \
     --package xtask --package xtask-docs --package xtask-registers";

/// Returns the time of a file's last change, or `None` if it can't be read.
pub(crate) fn changed(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .ok()
}

/// The workspace of this task.
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// Loads the workspace.
    pub fn load() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let json = Run::cargo("metadata --no-deps --locked --format-version 1", here).output()?;
        let metadata: Value = serde_json::from_str(&json)?;
        let path = |field: &str| {
            metadata[field]
                .as_str()
                .map(PathBuf::from)
                .ok_or("cargo metadata names no folder")
        };
        Ok(Self {
            root: path("workspace_root")?,
            target: path("target_directory")?,
        })
    }

    /// Returns the directory of the root manifest.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns cargo's target directory.
    pub fn target(&self) -> &Path {
        &self.target
    }
}
