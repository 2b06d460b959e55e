//! The JavaScript bindings of a module, by wasm-bindgen.

use std::fs;
use std::path::Path;

use wasm_bindgen_cli_support::Bindgen;

use crate::Result;

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
            bindgen.reset_state_function(true).force_enable_abort_handler(true)
        }
        Target::Package => bindgen.web(true)?.omit_default_module_path(true),
        Target::Node => bindgen.nodejs(true)?,
    };
    Ok(bindgen.generate(folder)?)
}
