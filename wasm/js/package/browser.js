// For browsers and other runtimes, which fetch the .wasm file.
import init from "./ifmatch.js";

await init({ module_or_path: new URL("./ifmatch_bg.wasm", import.meta.url) });

export * from "./ifmatch.js";
