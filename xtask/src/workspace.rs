//! What cargo knows of the workspace: where it is, its packages, and which of them are published.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Result;
use crate::command::Run;

/// The workspace that this task belongs to.
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    packages: Vec<Package>,
}

/// A package of the workspace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Package {
    /// As in its manifest.
    pub(crate) name: String,
    /// As in its manifest.
    pub(crate) version: String,
    /// Whether it may go to a registry.
    pub(crate) published: bool,
    /// Whether its manifest has features of its own, beyond `default`.
    pub(crate) has_features: bool,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Self> {
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

    /// The directory of the root manifest.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo builds.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The packages that go to a registry.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
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
    fn the_libraries_are_published_and_the_helpers_are_not() {
        let workspace = Workspace::load().unwrap();
        let published: Vec<&str> = workspace.published().map(|package| package.name.as_str()).collect();
        assert!(published.contains(&"ifmatch") && published.contains(&"ifmatch-core"), "{published:?}");
        for private in ["xtask", "ifmatch-workspace", "ifmatch-sim"] {
            assert!(!published.contains(&private), "{private} is not for a registry");
        }
    }
}
