//! `cargo xtask component`: builds the WebAssembly component of the layer, and tests it in a host.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use crate::Result;
use crate::command::Run;
use crate::step::{BUILD, Context};
use crate::workspace::{Workspace, changed};
use crate::{ci, npm, sdk, wasm};

/// Builds the component.
pub(crate) fn run() -> Result {
    build(&Workspace::load()?, Instant::now() + BUILD).map(drop)
}

/// Builds the component, and a guest that knows nothing of conditions. Returns their paths.
pub fn build_with_guest(workspace: &Workspace, deadline: Instant) -> Result<(PathBuf, PathBuf)> {
    let component = build(workspace, deadline)?;
    Ok((
        component,
        build_as(workspace, "component-guest", "guest.wasm", deadline)?,
    ))
}

/// Builds the component, and returns its path.
pub(crate) fn build(workspace: &Workspace, deadline: Instant) -> Result<PathBuf> {
    let file = build_as(workspace, "ifmatch-component", "ifmatch.wasm", deadline)?;
    println!(
        "{}: {} bytes compressed",
        file.display(),
        wasm::compressed(&file)?
    );
    Ok(file)
}

fn build_as(
    workspace: &Workspace,
    package: &str,
    name: &str,
    deadline: Instant,
) -> Result<PathBuf> {
    let component = wasm::build_component(workspace, package, deadline)?;
    let folder = workspace.target().join("component");
    fs::create_dir_all(&folder)?;
    let file = folder.join(name);
    fs::write(&file, component)?;
    Ok(file)
}

/// Checks the component's size, and runs the tests in wasm/host with it and with a guest.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let (workspace, deadline) = (context.workspace, context.deadline);
    let (component, guest) = build_with_guest(workspace, deadline)?;
    let size = wasm::compressed(&component)?;
    wasm::check_size(workspace, "component compressed bytes", size)?;
    let python = python(context)?;
    let host = |command: &str| {
        Run::cargo(command, &workspace.root().join("wasm/host")).env(
            "CARGO_TARGET_DIR",
            workspace.target().join("component-host"),
        )
    };
    host("clippy --quiet --locked --all-targets -- -D warnings").passes(deadline)?;
    host("test --locked")
        .env("IFMATCH_COMPONENT", component)
        .env("IFMATCH_GUEST", guest)
        .env("IFMATCH_JAVASCRIPT_GUEST", javascript(context)?)
        .env("IFMATCH_PYTHON_GUEST", python)
        .env("IFMATCH_BIN", ci::gateway(context)?)
        .passes(deadline)?;
    context.discard("component-host");
    Ok(())
}

/// Builds the guest in JavaScript, and returns its path.
fn javascript(context: &Context<'_>) -> Result<PathBuf> {
    npm::require(context.workspace, npm::GUEST, context.deadline)?;
    let component = context.workspace.target().join("component/javascript.wasm");
    Run::new("node", &context.workspace.root().join(npm::GUEST))
        .args([
            "node_modules/componentize-qjs/bin/componentize-qjs",
            "--world",
            "guest",
            "--js",
            "app.js",
            "--wit",
        ])
        .args([
            wit(context).as_os_str(),
            "--output".as_ref(),
            component.as_os_str(),
        ])
        .passes(context.deadline)?;
    Ok(component)
}

/// Builds the guest in Python, unless it is newer than what it is made of, and returns its path.
fn python(context: &Context<'_>) -> Result<PathBuf> {
    let folder = context.workspace.target().join("component");
    let (source, component) = (
        context.workspace.root().join("wasm/guest/python"),
        folder.join("python.wasm"),
    );
    let parts = [
        source.join("app.py"),
        source.join("requirements.txt"),
        wit(context).join("world.wit"),
    ];
    if parts.iter().all(|part| changed(part) < changed(&component)) {
        return Ok(component);
    }
    let python = sdk::python(context, &folder, "wasm/guest/python/requirements.txt")?;
    Run::new(python.with_file_name("componentize-py"), &source)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["--wit-path".as_ref(), wit(context).as_os_str()])
        .args(["--world", "guest", "componentize", "app", "--output"])
        .args([&component])
        .passes(context.deadline)?;
    Ok(component)
}

/// Returns the folder with the guests' world.
fn wit(context: &Context<'_>) -> PathBuf {
    context.workspace.root().join("wasm/component/wit")
}
