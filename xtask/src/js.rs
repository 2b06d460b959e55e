//! The npm package: builds it from wasm/js, and tests it in Node and in Cloudflare's runtime. Its client is TypeScript; the example `notes`
//! has a copy in one file, so it runs without npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::command::Run;
use crate::step::{BUILD, Context};
use crate::wasm::{self, Target};
use crate::workspace::Workspace;
use crate::{Result, npm, worker};

/// The client's copy in the example.
const COPY: &str = "examples/notes/client.js";

/// Builds the package, and the client's copy in the example.
pub(crate) fn run() -> Result {
    let (workspace, deadline) = (Workspace::load()?, Instant::now() + BUILD);
    build(&workspace, deadline)?;
    bundle_client(&workspace, &workspace.root().join(COPY), deadline)
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
    npm::require(workspace, npm::JS, deadline)?;
    Run::new("node", &workspace.root().join(npm::JS))
        .args([
            "node_modules/typescript/bin/tsc",
            "--project",
            "tsconfig.client.json",
            "--outDir",
        ])
        .args([folder.join("client")])
        .passes(deadline)?;
    // The class for other Workers, of the template.
    for file in ["blobs.js", "blobs.d.ts"] {
        fs::copy(
            workspace.root().join("wasm/template/src").join(file),
            folder.join(file),
        )?;
    }
    println!(
        "{}: {} bytes of WebAssembly compressed, {} as text",
        folder.display(),
        wasm::compressed(&folder.join("ifmatch_bg.wasm"))?,
        wasm::compressed(&inline)?
    );
    Ok(folder)
}

/// Writes the client as one file, which a page can load.
fn bundle_client(workspace: &Workspace, to: &Path, deadline: Instant) -> Result {
    Run::new("node", &workspace.root().join(npm::JS))
        .args([
            "node_modules/esbuild/bin/esbuild",
            "client/client.ts",
            "--bundle",
            "--format=esm",
            "--target=es2022",
        ])
        .args([
            "--banner:js=// The client of the npm package in one file: `cargo xtask js` writes it.",
            "--log-level=warning",
        ])
        .args([format!("--outfile={}", to.display())])
        .passes(deadline)
}

/// Compares the client's copy in the example with the client.
fn check_copy(workspace: &Workspace, deadline: Instant) -> Result {
    let current = workspace.target().join("npm/client.js");
    bundle_client(workspace, &current, deadline)?;
    if fs::read(&current)? == fs::read(workspace.root().join(COPY))? {
        return Ok(());
    }
    Err(format!("{COPY} isn't the client in wasm/js/client: run `cargo xtask js`").into())
}

/// Removes the methods from the declarations that only the newest `lib` of TypeScript knows.
fn without_disposal(declarations: &Path) -> Result {
    let text = fs::read_to_string(declarations)?;
    let lines = text
        .lines()
        .filter(|line| !line.contains("[Symbol.dispose]"));
    Ok(fs::write(
        declarations,
        lines.flat_map(|line| [line, "\n"]).collect::<String>(),
    )?)
}

/// Checks the package's types, runs the RFC tables through it, and tests Workers that use it.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let package = build(context.workspace, context.deadline)?;
    check_copy(context.workspace, context.deadline)?;
    npm::require(context.workspace, npm::MINIFLARE, context.deadline)?;
    let here = context.workspace.root().join(npm::JS);
    // The tests import it by name, as users do.
    let installed = here.join("node_modules/ifmatch");
    if installed.exists() {
        fs::remove_dir_all(&installed)?;
    }
    copy(&package, &installed)?;
    copy(&package.join("client"), &installed.join("client"))?;
    for project in ["tsconfig.json", "tsconfig.worker.json"] {
        let run =
            Run::new("node", &here).args(["node_modules/typescript/bin/tsc", "--project", project]);
        run.passes(context.deadline)?;
    }
    let bundled = context.workspace.target().join("npm/bundled");
    worker::bundle(
        context.workspace,
        &here.join("tests/workers/notes.mjs"),
        &bundled,
        context.deadline,
    )?;
    Run::new("node", &here)
        .args(["--test", "tests"])
        .env("IFMATCH_BUNDLED", &bundled)
        .passes(context.deadline)
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
