// How much time of the processor it takes to load the Worker, before any request: in Node, whose engine is the runtime's.
// Each time in a process of its own, which has run nothing before; with the functions compiled once they are called, as
// the runtime does it.
//   node startup.mjs --modules DIR
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { median } from "./load.mjs";

const ROUNDS = 21;
const { values } = parseArgs({ options: { modules: { type: "string" }, once: { type: "boolean", default: false } } });

// In place of what only Workers have.
const WORKERS = "const waitUntil = () => {};";
const MODULE = "const wasmModule = globalThis.compiled;";

/** Compiles and instantiates the module, and runs what it runs at the start: microseconds of each. */
async function load(folder) {
  const bytes = fs.readFileSync(path.join(folder, "index_bg.wasm"));
  globalThis.WebAssembly.JSTag ??= new WebAssembly.Tag({ parameters: ["externref"] });
  const begun = process.cpuUsage();
  globalThis.compiled = new WebAssembly.Module(bytes);
  const compiled = process.cpuUsage(begun);
  // What Node needs to load its first module of all is not the Worker's.
  await import("data:text/javascript,");
  const before = process.cpuUsage();
  await import(pathToFileURL(path.join(folder, "index.mjs")));
  const started = process.cpuUsage(before);
  return [compiled, started].map(({ user, system }) => user + system);
}

if (values.once) {
  console.log(JSON.stringify(await load(values.modules)));
} else {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ifmatch-startup-"));
  try {
    fs.cpSync(values.modules, folder, { recursive: true });
    const script = fs.readFileSync(path.join(folder, "index.js"), "utf8");
    const own = script
      .replace(/import \{ waitUntil \} from .*/, WORKERS)
      .replace(/import wasmModule from .*/, MODULE)
      .replace(/\.js';/g, ".mjs';");
    fs.writeFileSync(path.join(folder, "index.mjs"), own);
    for (const file of fs.readdirSync(folder, { recursive: true }).filter((file) => /snippets.*\.js$/.test(file))) {
      fs.copyFileSync(path.join(folder, file), path.join(folder, file.replace(/\.js$/, ".mjs")));
    }
    const rounds = Array.from({ length: ROUNDS }, () =>
      JSON.parse(execFileSync(process.execPath, [import.meta.filename, "--once", "--modules", folder]).toString()));
    const [compiled, started] = [0, 1].map((at) => median(rounds.map((round) => round[at])) / 1_000);
    console.log(`| start-up | ${compiled.toFixed(1)} ms to compile | ${started.toFixed(1)} ms to begin |`);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}
