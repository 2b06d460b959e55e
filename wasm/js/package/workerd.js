// For Cloudflare's runtime, which compiles an imported .wasm file.
import module from "./ifmatch_bg.wasm";
import { initSync } from "./ifmatch.js";

initSync({ module });

export * from "./ifmatch.js";
