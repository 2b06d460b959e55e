//! Folders that users copy to begin a Worker of their own: each must build where nothing else of the repository is.

use std::fs;
use std::path::{Path, PathBuf};

use super::{wrangler, write};
use crate::Result;
use crate::step::Context;
use crate::wasm;

/// The repository as a source of crates, in the templates' manifests.
const REPOSITORY: &str = "git = \"https://github.com/ifmatch/ifmatch\"";

/// A copy of a template outside of the workspace, built, and removed on drop.
pub(super) struct Copied {
    folder: PathBuf,
}

impl Copied {
    /// Copies a template and builds the copy, with this workspace's crates in place of the repository's.
    pub(super) fn build(context: &Context<'_>, template: &str) -> Result<Self> {
        let root = context.workspace.root();
        let from = root.join(template);
        let name = from.file_name().ok_or("a template is a folder")?.to_string_lossy();
        let folder = std::env::temp_dir().join(format!("ifmatch-{}-{name}", std::process::id()));
        let copied = Self { folder };
        fs::create_dir_all(copied.folder.join("src"))?;
        for file in ["Cargo.toml", "wrangler.toml"] {
            fs::copy(from.join(file), copied.folder.join(file))?;
        }
        for entry in fs::read_dir(from.join("src"))? {
            let file = entry?;
            // This task's build has another entry than that of worker-build.
            let text = fs::read_to_string(file.path())?.replace("../build/index.js", "../build/entry.js");
            fs::write(copied.folder.join("src").join(file.file_name()), text)?;
        }
        let manifest = copied.folder.join("Cargo.toml");
        let text = fs::read_to_string(&manifest)?;
        let lines = text.lines().map(|line| local(line, root)).collect::<Vec<_>>();
        fs::write(&manifest, lines.join("\n"))?;
        // The same versions of all dependencies.
        fs::copy(root.join("Cargo.lock"), copied.folder.join("Cargo.lock"))?;
        let package = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let package = package.ok_or("the template's Cargo.toml has no name")?;
        let module = wasm::build_outside(context.workspace, &copied.folder, package, context.deadline)?;
        write(&module, &copied.modules())?;
        Ok(copied)
    }

    /// Returns the folder of the modules. The entry is `entry.js`.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("build")
    }

    /// Checks that Wrangler would deploy the copy, for each of the environments.
    pub(super) fn deploys(&self, context: &Context<'_>, environments: &[&str]) -> Result {
        let own = self.folder.join("src/index.js");
        let main = if own.exists() { own } else { self.modules().join("entry.js") };
        wrangler::check(context, &self.folder, &main, environments)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // It may be incomplete, or removed already.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Replaces the repository in a line of a manifest by the path of the crate in this workspace.
fn local(line: &str, root: &Path) -> String {
    let name = line.split(' ').next().unwrap_or_default();
    let folder = if name == "ifmatch-worker" { root.join("wasm/worker") } else { root.join("crates").join(name) };
    line.replace(REPOSITORY, &format!("path = {:?}", folder.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_repository_is_replaced() {
        let root = Path::new("/root");
        let line = format!("ifmatch = {{ {REPOSITORY}, default-features = false }}");
        assert_eq!(local(&line, root), "ifmatch = { path = \"/root/crates/ifmatch\", default-features = false }");
        assert_eq!(
            local(&format!("ifmatch-worker = {{ {REPOSITORY} }}"), root),
            "ifmatch-worker = { path = \"/root/wasm/worker\" }"
        );
        assert_eq!(local("http = \"1\"", root), "http = \"1\"");
    }
}
