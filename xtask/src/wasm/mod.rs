//! WebAssembly: builds a package for it, and writes the bindings that JavaScript loads it by.

mod bindings;
pub(crate) mod in_node;
mod order;
mod toolchain;
mod unused;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Result;
use crate::workspace::Workspace;

pub(crate) use bindings::{Target, write};
use toolchain::Toolchain;
pub(crate) use toolchain::{INSTALL, PROBE};

/// What is built with what is in the profile of this name.
const PROFILE: &str = "worker";
const TARGET: &str = "wasm32-unknown-unknown";

/// Builds a package, and returns where its WebAssembly lies: names of its own for what it needs of JavaScript, no bindings
/// yet.
pub(crate) fn build(workspace: &Workspace, package: &str, deadline: Instant) -> Result<PathBuf> {
    let toolchain = Toolchain::find(workspace)?;
    let target = workspace.target().join("wasm");
    toolchain.build(workspace, package, &target)?.passes(deadline)?;
    let module = format!("{}.wasm", package.replace('-', "_"));
    Ok(target.join(TARGET).join(PROFILE).join(module))
}

/// The bytes of a file, as they are sent: compressed as a Worker's size is counted.
pub(crate) fn compressed(file: &Path) -> Result<usize> {
    let bytes = std::fs::read(file)?;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &bytes)?;
    Ok(encoder.finish()?.len())
}
