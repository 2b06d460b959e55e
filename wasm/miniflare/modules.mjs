// The modules of a package, for miniflare.
import fs from "node:fs";
import path from "node:path";

// All of a folder, the entry first. `as` is the folder that the runtime finds them in, their own by default.
export function modules(folder, entry, as = folder) {
  const files = fs.readdirSync(folder, { recursive: true }).filter((file) => /\.(js|wasm)$/.test(file));
  files.sort((a, b) => (b === entry) - (a === entry));
  return files.map((file) => {
    const isWasm = file.endsWith(".wasm");
    const contents = fs.readFileSync(path.join(folder, file), isWasm ? undefined : "utf8");
    return { type: isWasm ? "CompiledWasm" : "ESModule", path: path.join(as, file), contents };
  });
}
