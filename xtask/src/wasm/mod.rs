//! WebAssembly: builds packages for it, as components or with JavaScript bindings.

pub(crate) mod in_node;
mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use toolchain::{Host, TARGET, Toolchain};
use wasm_bindgen_cli_support::Bindgen;
use wit_component::ComponentEncoder;

use crate::Result;
use crate::workspace::Workspace;

pub use toolchain::TOOLCHAIN;

/// Builds a package, and returns the path of its module, which has no bindings yet.
pub(crate) fn build(workspace: &Workspace, package: &str, deadline: Instant) -> Result<PathBuf> {
    let args = format!("--locked --package {package}");
    build_in(
        workspace,
        workspace.root(),
        &args,
        package,
        Host::JavaScript,
        deadline,
    )
}

/// Builds a package as a component, and returns its bytes.
pub(crate) fn build_component(
    workspace: &Workspace,
    package: &str,
    deadline: Instant,
) -> Result<Vec<u8>> {
    let args = format!("--locked --package {package}");
    let module = build_in(
        workspace,
        workspace.root(),
        &args,
        package,
        Host::Components,
        deadline,
    )?;
    Ok(ComponentEncoder::default()
        .module(&fs::read(module)?)?
        .validate(true)
        .encode()?)
}

/// Builds the package in a folder outside of the workspace, and returns the path of its module, which has no bindings yet.
pub(crate) fn build_outside(
    workspace: &Workspace,
    dir: &Path,
    package: &str,
    deadline: Instant,
) -> Result<PathBuf> {
    build_in(workspace, dir, "", package, Host::JavaScript, deadline)
}

fn build_in(
    workspace: &Workspace,
    dir: &Path,
    args: &str,
    package: &str,
    host: Host,
    deadline: Instant,
) -> Result<PathBuf> {
    let toolchain = Toolchain::find(workspace)?;
    let target = workspace.target().join("wasm");
    toolchain
        .build(dir, args, host, &target)?
        .passes(deadline)?;
    let module = format!("{}.wasm", package.replace('-', "_"));
    Ok(target.join(TARGET).join(host.profile()).join(module))
}

/// Fails if the size of what is built exceeds its limit in wasm/budget.json, which has this name.
pub(crate) fn check_size(workspace: &Workspace, name: &str, size: usize) -> Result {
    let text = fs::read_to_string(workspace.root().join("wasm/budget.json"))?;
    let budget: serde_json::Value = serde_json::from_str(&text)?;
    let most = budget[name]
        .as_u64()
        .ok_or_else(|| format!("wasm/budget.json has no `{name}`"))?;
    if u64::try_from(size)? <= most {
        return Ok(());
    }
    Err(format!("{name}: {size}. The limit in wasm/budget.json is {most}.").into())
}

/// Returns the compressed size of a file. Cloudflare's size limits count compressed bytes.
pub(crate) fn compressed(file: &Path) -> Result<usize> {
    let bytes = fs::read(file)?;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &bytes)?;
    Ok(encoder.finish()?.len())
}

/// Runtime that loads the module.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// A Cloudflare Worker. Its entry imports the module, and replaces the instance after a fatal error.
    Worker,
    /// The npm package, with types. Its entries pass the module to the bindings.
    Package,
    /// A program in Node.
    Node,
}

impl Target {
    /// Base name of the files.
    fn name(self) -> &'static str {
        match self {
            Self::Worker => "index",
            Self::Package => "ifmatch",
            Self::Node => "tests",
        }
    }
}

/// Writes a module and its bindings to a folder: `index.js` and `index_bg.wasm` for a Worker, `ifmatch.js` and
/// `ifmatch_bg.wasm` for the package, `tests.js` and `tests_bg.wasm` for Node.
pub(crate) fn write(module: &Path, target: Target, folder: &Path) -> Result {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(module)
        .out_name(target.name())
        .typescript(target == Target::Package)
        .remove_producers_section(true)
        .remove_name_section(true);
    match target {
        Target::Worker => {
            bindgen.web(true)?.omit_default_module_path(true);
            bindgen
                .reset_state_function(true)
                .force_enable_abort_handler(true)
        }
        Target::Package => bindgen.web(true)?.omit_default_module_path(true),
        Target::Node => bindgen.nodejs(true)?,
    };
    Ok(bindgen.generate(folder)?)
}
