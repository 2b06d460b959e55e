//! The workspace, by `cargo metadata`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Result;
use crate::command::Run;

/// One selection of packages and features for all native builds and tests, so that nothing is compiled twice. With its
/// feature, the harness builds only with the Worker's toolchain.
pub(crate) const SELECTION: &str = "--workspace --exclude wasm-harness --all-features";

/// The workspace of this task.
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
    packages: Vec<Package>,
}

/// A package of the workspace.
#[derive(Debug, Clone, PartialEq)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// `true` if the package is published to a registry.
    pub published: bool,
    /// `true` if the package has features other than `default`.
    pub has_features: bool,
    /// `true` if some of them are enabled by default.
    pub has_default_features: bool,
}

impl Workspace {
    /// Loads the workspace.
    pub fn load() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let json = Run::cargo("metadata --no-deps --locked --format-version 1", here).output()?;
        let metadata: Value = serde_json::from_str(&json)?;
        let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
        Ok(Self {
            root: text(&metadata, "workspace_root")?.into(),
            target: text(&metadata, "target_directory")?.into(),
            packages: packages.iter().map(Package::from_metadata).collect::<Result<_>>()?,
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

    /// Returns the published packages.
    pub fn published(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.published)
    }
}

impl Package {
    fn from_metadata(package: &Value) -> Result<Self> {
        let features = package["features"].as_object();
        Ok(Self {
            name: text(package, "name")?,
            version: text(package, "version")?,
            published: package["publish"].is_null(),
            has_features: features.is_some_and(|features| features.keys().any(|name| name != "default")),
            has_default_features: package["features"]["default"].as_array().is_some_and(|enabled| !enabled.is_empty()),
        })
    }
}

fn text(object: &Value, field: &str) -> Result<String> {
    let value = object[field].as_str().ok_or_else(|| format!("cargo metadata has no `{field}`"))?;
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_published_and_helpers_are_not() {
        let workspace = Workspace::load().unwrap();
        let published: Vec<&str> = workspace.published().map(|package| package.name.as_str()).collect();
        assert!(published.contains(&"ifmatch") && published.contains(&"ifmatch-core"), "{published:?}");
        for private in ["xtask", "ifmatch-workspace", "ifmatch-sim", "ifmatch-testbed"] {
            assert!(!published.contains(&private), "{private} is not for a registry");
        }
    }
}
