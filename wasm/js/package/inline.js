// For all runtimes but Cloudflare's: the module is in the text of its neighbour, so that any bundler takes it along.
import { initSync } from "./ifmatch.js";
import { base64 } from "./ifmatch_base64.js";

initSync({ module: Uint8Array.from(atob(base64), (char) => char.charCodeAt(0)) });

export * from "./ifmatch.js";
