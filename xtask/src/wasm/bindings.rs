//! What JavaScript loads WebAssembly by.

use std::fs;
use std::path::Path;

use wasm_bindgen_cli_support::Bindgen;

use super::order::order;
use super::unused::{taken, used};
use crate::Result;

/// The class that a Worker has for the runtime.
const OBJECTS: &str = "Records";

/// Who loads it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// A Cloudflare Worker: the module is imported, and made anew after a fault that cannot be caught.
    Worker,
    /// The runtimes that a package is for: the module is given by who loads it, and there are types.
    Package,
    /// Node, of a program that runs as soon as it is loaded.
    Node,
}

impl Target {
    /// What the files are called.
    fn name(self) -> &'static str {
        match self {
            Self::Worker => "index",
            Self::Package => "ifmatch",
            Self::Node => "tests",
        }
    }
}

/// Writes the bindings of a module into a folder, as `index.js` and `index_bg.wasm` in a Worker,
/// `ifmatch.js` and `ifmatch_bg.wasm` in a package, `tests.js` and `tests_bg.wasm` in Node.
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
        Target::Worker => bindgen.module(true)?.reset_state_function(true).force_enable_abort_handler(true),
        Target::Package => bindgen.web(true)?,
        Target::Node => bindgen.nodejs(true)?,
    };
    bindgen.generate(folder)?;
    let module = folder.join(format!("{}_bg.wasm", target.name()));
    let bytes = fs::read(&module)?;
    if target == Target::Worker {
        let script = folder.join("index.js");
        let text = used(&for_worker(&fs::read_to_string(&script)?)?, &[OBJECTS]);
        let taken = taken(&text);
        fs::write(&module, order(&bytes, |export| taken.contains(export))?)?;
        fs::write(&script, text)?;
    } else {
        fs::write(&module, order(&bytes, |_| true)?)?;
    }
    Ok(())
}

/// What the runtime of Workers takes and the oldest Node that packages run in does not: its exceptions have a tag for
/// WebAssembly, and imports need no function around each of them that turns exceptions into others. That function is
/// made anew with every call otherwise.
fn for_worker(script: &str) -> Result<String> {
    const TAG: &str = "new WebAssembly.Tag({ parameters: ['externref'] })";
    let polyfill = |tag| format!("const __wbindgen_jstag_polyfill = {tag};");
    let script = script
        // The runtime gives a compiled module by a plain import.
        .replace("import source ", "import ")
        .replace("function() { return wrapError(function ", "function ")
        .replace("}, arguments); }", "}")
        .replace(&polyfill(TAG), &polyfill("WebAssembly.JSTag"));
    let is_whole = script.contains(&polyfill("WebAssembly.JSTag")) && !script.contains("return wrapError(");
    if is_whole { Ok(script) } else { Err("the bindings turn exceptions into others in a way of their own".into()) }
}
