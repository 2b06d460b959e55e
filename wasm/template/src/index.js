// The Worker. Wrangler builds the service, from lib.rs, into build/.
export { default, Records } from "../build/index.js";
// For other Workers, by a service binding.
export { Blobs } from "./blobs.js";
