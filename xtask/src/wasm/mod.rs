//! WebAssembly: builds packages for it, and generates their JavaScript bindings.

mod bindings;
pub(crate) mod in_node;
mod toolchain;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Result;
use crate::workspace::Workspace;

pub(crate) use bindings::{Target, write};
pub(crate) use toolchain::TOOLCHAIN;
use toolchain::{PROFILE, TARGET, Toolchain};

/// Builds a package, and returns the path of its module, which has no bindings yet.
pub(crate) fn build(workspace: &Workspace, package: &str, deadline: Instant) -> Result<PathBuf> {
    build_in(workspace, workspace.root(), &format!("--locked --package {package}"), package, deadline)
}

/// Builds the package in a folder outside of the workspace, and returns the path of its module, which has no bindings yet.
pub(crate) fn build_outside(workspace: &Workspace, dir: &Path, package: &str, deadline: Instant) -> Result<PathBuf> {
    build_in(workspace, dir, "", package, deadline)
}

fn build_in(workspace: &Workspace, dir: &Path, args: &str, package: &str, deadline: Instant) -> Result<PathBuf> {
    let toolchain = Toolchain::find(workspace)?;
    let target = workspace.target().join("wasm");
    toolchain.build(dir, args, &target)?.passes(deadline)?;
    let module = format!("{}.wasm", package.replace('-', "_"));
    Ok(target.join(TARGET).join(PROFILE).join(module))
}

/// Returns the compressed size of a file. Cloudflare's size limits count compressed bytes.
pub(crate) fn compressed(file: &Path) -> Result<usize> {
    let bytes = std::fs::read(file)?;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &bytes)?;
    Ok(encoder.finish()?.len())
}
