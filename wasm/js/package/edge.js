// For edge runtimes, which forbid compiling bytes: their bundlers compile an imported .wasm?module file.
import module from "./ifmatch_bg.wasm?module";
import { initSync } from "./ifmatch.js";

// A local server compiles it outside of the sandbox, so the sandbox's `instanceof`, which initSync asks, would deny that it is a module.
initSync({ module: Object.setPrototypeOf(module, WebAssembly.Module.prototype) });

export * from "./ifmatch.js";
