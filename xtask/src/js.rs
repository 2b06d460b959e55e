//! The npm package: builds it from wasm/js, and tests it in Node and in Cloudflare's runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::command::Run;
use crate::step::Context;
use crate::wasm::{self, Target};
use crate::workspace::Workspace;
use crate::{Result, npm, worker};

/// Builds the package.
pub(crate) fn run() -> Result {
    build(&Workspace::load()?, Instant::now() + Duration::from_hours(1)).map(drop)
}

/// Builds the package, and returns its folder for `npm publish`.
fn build(workspace: &Workspace, deadline: Instant) -> Result<PathBuf> {
    let module = wasm::build(workspace, "ifmatch-js", deadline)?;
    let folder = workspace.target().join("npm/ifmatch");
    wasm::write(&module, Target::Package, &folder)?;
    without_disposal(&folder.join("ifmatch.d.ts"))?;
    let inline = folder.join("ifmatch_base64.js");
    let text = BASE64_STANDARD.encode(fs::read(folder.join("ifmatch_bg.wasm"))?);
    fs::write(&inline, format!("export const base64 = \"{text}\";\n"))?;
    copy(&workspace.root().join("wasm/js/package"), &folder)?;
    // The class for other Workers, of the template.
    for file in ["blobs.js", "blobs.d.ts"] {
        fs::copy(workspace.root().join("wasm/template/src").join(file), folder.join(file))?;
    }
    println!(
        "{}: {} bytes of WebAssembly compressed, {} as text",
        folder.display(),
        wasm::compressed(&folder.join("ifmatch_bg.wasm"))?,
        wasm::compressed(&inline)?
    );
    Ok(folder)
}

/// Removes the methods from the declarations that only the newest `lib` of TypeScript knows.
fn without_disposal(declarations: &Path) -> Result {
    let text = fs::read_to_string(declarations)?;
    let lines = text.lines().filter(|line| !line.contains("[Symbol.dispose]"));
    Ok(fs::write(declarations, lines.flat_map(|line| [line, "\n"]).collect::<String>())?)
}

/// Checks the package's types, runs the RFC tables through it, and tests Workers that use it.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let package = build(context.workspace, context.deadline)?;
    for folder in [npm::JS, npm::MINIFLARE] {
        npm::require(context.workspace, folder, context.deadline)?;
    }
    let here = context.workspace.root().join(npm::JS);
    // The tests import it by name, as users do.
    let installed = here.join("node_modules/ifmatch");
    if installed.exists() {
        fs::remove_dir_all(&installed)?;
    }
    copy(&package, &installed)?;
    for project in ["tsconfig.json", "tsconfig.worker.json"] {
        let run = Run::new("node", &here).args(["node_modules/typescript/bin/tsc", "--project", project]);
        run.passes(context.deadline)?;
    }
    let bundled = context.workspace.target().join("npm/bundled");
    worker::bundle(context.workspace, &here.join("tests/workers/notes.mjs"), &bundled, context.deadline)?;
    Run::new("node", &here).args(["--test", "tests"]).env("IFMATCH_BUNDLED", &bundled).passes(context.deadline)
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) -> Result {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let file = entry?;
        if file.file_type()?.is_file() {
            fs::copy(file.path(), to.join(file.file_name()))?;
        }
    }
    Ok(())
}
