// For Node: the .wasm file is next to this one.
import { readFileSync } from "node:fs";
import { initSync } from "./ifmatch.js";

initSync({ module: readFileSync(new URL("./ifmatch_bg.wasm", import.meta.url)) });

export * from "./ifmatch.js";
