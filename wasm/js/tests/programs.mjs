// The other runtimes, from their npm packages.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

/** The program of an optional package for this machine. */
function program(scope, packages, file) {
  const found = packages.map((name) => path.join(import.meta.dirname, "../node_modules", scope, name, file)).find((its) => fs.existsSync(its));
  return found ?? assert.fail(`${scope} has none of ${packages.join(", ")} here: npm ci in wasm/js`);
}
export const bun = () => program("@oven", ["bun-linux-x64-baseline", "bun-linux-aarch64", "bun-darwin-aarch64"], "bin/bun");
export const deno = () => program("@deno", ["linux-x64-glibc", "linux-arm64-glibc", "darwin-arm64"], "deno");
