// Modules of a folder, for miniflare.
import fs from "node:fs";
import path from "node:path";

// Returns all modules of a folder, the entry first. `as` is their folder in the runtime, by default their own.
export function modules(folder, entry, as = folder) {
  const files = fs.readdirSync(folder, { recursive: true }).filter((file) => /\.(js|wasm)$/.test(file));
  files.sort((a, b) => (b === entry) - (a === entry));
  return files.map((file) => {
    const isWasm = file.endsWith(".wasm");
    const contents = fs.readFileSync(path.join(folder, file), isWasm ? undefined : "utf8");
    return { type: isWasm ? "CompiledWasm" : "ESModule", path: path.join(as, file), contents };
  });
}
