//! The libraries in the binary: as a bill of materials (`CycloneDX`), and with the texts of their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::build::Target;
use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;

/// The libraries of a binary, and the gateway itself.
pub(super) struct Libraries {
    packages: Vec<Library>,
}

/// A package that is part of the binary.
#[derive(Debug, Clone)]
struct Library {
    name: String,
    version: String,
    licence: String,
    /// SHA-256 of the package in the registry, if it comes from there.
    checksum: Option<String>,
    folder: PathBuf,
    /// Packages of the binary that it depends on, by their purl.
    depends_on: BTreeSet<String>,
}

/// Name of the package with the binary.
const GATEWAY: &str = "ifmatch-gateway";

impl Libraries {
    /// Asks cargo for the libraries of the gateway on a target. Proc macros and build scripts are not among them.
    pub(super) fn load(workspace: &Workspace, target: &Target) -> Result<Self> {
        let root = workspace.root();
        let tree = format!(
            "tree --locked --package {GATEWAY} --target {} --edges normal,no-proc-macro --prefix none",
            target.triple
        );
        let tree = Run::cargo(&tree, root).args(["--format", "{p}"]).output()?;
        let metadata = format!("metadata --locked --format-version 1 --filter-platform {}", target.triple);
        let metadata = serde_json::from_str(&Run::cargo(&metadata, root).output()?)?;
        let lock = toml::from_str(&fs::read_to_string(root.join("Cargo.lock"))?)?;
        Self::new(&tree, &metadata, &lock)
    }

    /// `tree` has a line for each library, `metadata` describes the packages of the workspace, and `lock` has their checksums.
    fn new(tree: &str, metadata: &Value, lock: &toml::Table) -> Result<Self> {
        let checksums = checksums(lock);
        let in_binary: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
        let listed = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
        let is_in_binary = |package: &&Value| in_binary.contains(&(text(package, "name"), text(package, "version")));
        let by_id: BTreeMap<&str, &Value> =
            listed.iter().filter(is_in_binary).map(|package| (text(package, "id"), package)).collect();
        let nodes = metadata["resolve"]["nodes"].as_array().ok_or("cargo metadata resolves nothing")?;
        let mut packages = Vec::new();
        for node in nodes {
            let Some(package) = by_id.get(text(node, "id")) else { continue };
            let normal = node["deps"].as_array().into_iter().flatten().filter(|dep| is_normal(dep));
            let depends_on =
                normal.filter_map(|dep| by_id.get(text(dep, "pkg"))).map(|package| purl(package)).collect();
            packages.push(Library {
                name: text(package, "name").to_owned(),
                version: text(package, "version").to_owned(),
                licence: expression(text(package, "license")),
                checksum: checksums.get(&(text(package, "name"), text(package, "version"))).map(ToString::to_string),
                folder: Path::new(text(package, "manifest_path")).parent().unwrap_or(Path::new("")).to_owned(),
                depends_on,
            });
        }
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        if packages.len() == in_binary.len() {
            Ok(Self { packages })
        } else {
            Err(format!("cargo tree lists {} packages, but cargo metadata {}", in_binary.len(), packages.len()).into())
        }
    }

    /// Returns the number of libraries.
    pub(super) fn len(&self) -> usize {
        self.packages.len() - 1
    }

    /// Returns the bill of materials.
    pub(super) fn bill(&self, target: &Target, created: &str) -> Result<Value> {
        let (gateway, others): (Vec<_>, Vec<_>) = self.packages.iter().partition(|library| library.name == GATEWAY);
        let [gateway] = gateway.as_slice() else { return Err("the gateway is missing among its packages".into()) };
        let mut subject = gateway.component("application");
        subject["properties"] = json!([{"name": "target", "value": target.triple}]);
        let dependencies: Vec<Value> = self
            .packages
            .iter()
            .map(|library| json!({"ref": library.purl(), "dependsOn": library.depends_on}))
            .collect();
        Ok(json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"timestamp": created, "component": subject},
            "components": others.iter().map(|library| library.component("library")).collect::<Vec<_>>(),
            "dependencies": dependencies,
        }))
    }

    /// Returns the licences of all libraries. A text that several share appears once.
    pub(super) fn licences(&self) -> Result<String> {
        let mut by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut list = String::new();
        for library in self.packages.iter().filter(|library| library.checksum.is_some()) {
            let name = format!("{} {}", library.name, library.version);
            writeln!(list, "{name}: {}", library.licence)?;
            for text in licence_texts(&library.folder)? {
                by_text.entry(text).or_default().insert(name.clone());
            }
        }
        let mut all = format!("The binary contains these libraries:\n\n{list}{STANDARD}");
        for (text, names) in by_text {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            write!(all, "\n{0}\n{names}\n{0}\n\n{text}\n", "=".repeat(79))?;
        }
        Ok(all)
    }
}

/// Libraries without a package.
const STANDARD: &str = "
It also contains the standard library of Rust (MIT OR Apache-2.0) and the C library: musl (MIT), or the GNU C library
(LGPL-2.1-or-later), which you may replace by building ifmatch from its sources.
";

impl Library {
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    fn component(&self, kind: &str) -> Value {
        let mut component = json!({
            "type": kind,
            "bom-ref": self.purl(),
            "name": self.name,
            "version": self.version,
            "purl": self.purl(),
            "licenses": [{"expression": self.licence}],
        });
        if let Some(checksum) = &self.checksum {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    }
}

/// Returns an SPDX expression of a licence, which older packages write with a slash.
fn expression(licence: &str) -> String {
    let words = licence.replace('/', " OR ").replace(" or ", " OR ");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parses a line of `cargo tree`: `name v1.0.0 (path)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

fn is_normal(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

fn checksums(lock: &toml::Table) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let field = |name: &str| package.get(name)?.as_str();
            Some(((field("name")?, field("version")?), field("checksum")?))
        })
        .collect()
}

/// Returns the texts of the licences and notices in a package's folder.
fn licence_texts(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().to_lowercase();
        let is_licence = ["licen", "copying", "notice", "unlicense"].iter().any(|start| name.starts_with(start));
        if is_licence && file.file_type()?.is_file() {
            texts.push(String::from_utf8_lossy(&fs::read(file.path())?).replace("\r\n", "\n").trim().to_owned());
        }
    }
    Ok(texts)
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, source: &Value) -> Value {
        json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source, "manifest_path": ""})
    }

    fn needs(name: &str, kind: &Value) -> Value {
        json!({"pkg": name, "dep_kinds": [{"kind": kind}]})
    }

    #[test]
    fn the_bill_has_the_libraries_of_the_binary_only() {
        let metadata = json!({
            "packages": [package(GATEWAY, &Value::Null), package("used", &json!("registry")), package("built-with", &json!("registry"))],
            "resolve": {"nodes": [
                {"id": GATEWAY, "deps": [needs("used", &Value::Null), needs("built-with", &json!("build"))]},
                {"id": "used", "deps": []},
                {"id": "built-with", "deps": []},
            ]},
        });
        let lock = toml::from_str("[[package]]\nname = 'used'\nversion = '1.0.0'\nchecksum = 'abc'\n").unwrap();
        let tree = "ifmatch-gateway v1.0.0 (/ifmatch)\nused v1.0.0\nused v1.0.0 (*)\n";
        let libraries = Libraries::new(tree, &metadata, &lock).unwrap();
        let bill = libraries.bill(&Target::for_tests(), "2026-11-23T12:00:00Z").unwrap();
        assert_eq!(bill["metadata"]["component"]["bom-ref"], "pkg:cargo/ifmatch-gateway@1.0.0");
        let component = json!([{
            "type": "library", "bom-ref": "pkg:cargo/used@1.0.0", "name": "used", "version": "1.0.0",
            "purl": "pkg:cargo/used@1.0.0", "licenses": [{"expression": "MIT OR Apache-2.0"}],
            "hashes": [{"alg": "SHA-256", "content": "abc"}],
        }]);
        assert_eq!(bill["components"], component);
        let edges = json!([
            {"ref": "pkg:cargo/ifmatch-gateway@1.0.0", "dependsOn": ["pkg:cargo/used@1.0.0"]},
            {"ref": "pkg:cargo/used@1.0.0", "dependsOn": []},
        ]);
        assert_eq!(bill["dependencies"], edges);
        assert!(Libraries::new(&format!("{tree}unknown v2.0.0\n"), &metadata, &lock).is_err());
    }

    #[test]
    fn licences_become_expressions() {
        assert_eq!(expression("Apache-2.0 / MIT"), "Apache-2.0 OR MIT");
        assert_eq!(expression("MIT or Apache-2.0"), "MIT OR Apache-2.0");
    }
}
