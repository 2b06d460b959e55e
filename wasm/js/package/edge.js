// For edge runtimes, which can't compile WebAssembly from bytes. Their bundlers compile a file imported as .wasm?module.
import module from "./ifmatch_bg.wasm?module";
import { initSync } from "./ifmatch.js";

// A development server compiles it outside the sandbox, where WebAssembly.Module is another class. initSync checks with `instanceof`.
initSync({ module: Object.setPrototypeOf(module, WebAssembly.Module.prototype) });

export * from "./ifmatch.js";
