// The README's first example with bundlers and runtimes: each takes the package along, and the result runs.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { EdgeVM } from "@edge-runtime/vm";
import * as esbuild from "esbuild";
import * as vite6 from "vite6";
import * as vite7 from "vite7";

import { bun, deno } from "./programs.mjs";

const here = import.meta.dirname;
const entry = path.join(here, "bundled/check.mjs");
const EXPECTED = JSON.stringify([204, 304, 204, 412, "bread"]);
/** Maximum time for a program in ms, generous for a busy machine. */
const LIMIT = 300_000;

async function run(program, ...args) {
  const options = { cwd: path.join(here, ".."), timeout: LIMIT, env: { ...process.env, DENO_NO_UPDATE_CHECK: "1" } };
  const ran = promisify(execFile)(program, args, options);
  return (await ran.catch((error) => assert.fail(`${program} failed or took over ${LIMIT} ms: ${error.stderr || error}`))).stdout.trim();
}

/** Bundles to a folder without anything else, and runs the result there. */
function bundled(name, bundle) {
  test(`${name} bundles the example`, async (t) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ifmatch-bundle-"));
    t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
    await bundle(folder);
    assert.deepEqual(fs.readdirSync(folder), ["check.mjs"]);
    assert.equal(await run(process.execPath, path.join(folder, "check.mjs")), EXPECTED);
  });
}

for (const platform of ["node", "browser"]) {
  bundled(`esbuild for ${platform}`, (folder) =>
    esbuild.build({ entryPoints: [entry], bundle: true, minify: true, format: "esm", platform, outfile: path.join(folder, "check.mjs") }));
}
for (const [name, vite] of Object.entries({ "Vite 6": vite6, "Vite 7": vite7 })) {
  bundled(name, (folder) =>
    vite.build({
      configFile: false,
      logLevel: "error",
      build: { outDir: folder, emptyOutDir: true, target: "es2022", lib: { entry, formats: ["es"], fileName: () => "check.mjs" } },
    }));
}
bundled("Bun", (folder) => run(bun(), "build", entry, "--target=node", `--outfile=${path.join(folder, "check.mjs")}`));

test("Bun runs the example", async () => assert.equal(await run(bun(), "run", entry), EXPECTED));
test("Deno runs the example", async () => {
  assert.equal(await run(deno(), "run", "--no-lock", "--node-modules-dir=manual", "--cached-only", entry), EXPECTED);
});

/** Bundles the example for an edge runtime, as Next.js does: the runtime compiles the imported file and defines a global for it. */
async function edge(conditions) {
  const imported = [];
  const plugin = {
    name: "modules",
    setup(build) {
      build.onResolve({ filter: /\.wasm\?module$/ }, ({ path: file, resolveDir }) => {
        imported.push(path.join(resolveDir, file.replace("?module", "")));
        return { path: file, namespace: "module" };
      });
      build.onLoad({ filter: /./, namespace: "module" }, () => ({ contents: "export default compiled;" }));
    },
  };
  const options = { bundle: true, write: false, format: "iife", globalName: "notes", conditions, plugins: [plugin] };
  const { outputFiles } = await esbuild.build({ ...options, entryPoints: [path.join(here, "workers/notes.mjs")] });
  const [compiled] = await Promise.all(imported.map((file) => WebAssembly.compile(fs.readFileSync(file))));
  const codeGeneration = { strings: false, wasm: false };
  const vm = new EdgeVM({ codeGeneration, extend: (context) => Object.assign(context, { compiled }) });
  vm.evaluate(outputFiles[0].text);
  return vm;
}

test("an edge runtime that can't compile bytes runs the example", async () => {
  const vm = await edge(["edge-light"]);
  const { notes, Request } = vm.context;
  const ask = (method, headers, body) => notes.default.fetch(new Request("http://a/note", { method, headers, body }));
  const created = await ask("PUT", { "if-none-match": "*" }, "milk");
  const etag = created.headers.get("etag");
  assert.equal((await ask("GET", { "if-none-match": etag })).status, 304);
  const saved = [await ask("PUT", { "if-match": etag }, "bread"), await ask("PUT", { "if-match": etag }, "eggs")];
  assert.deepEqual(saved.map(({ status }) => status), [204, 412]);
  assert.equal(await (await ask("GET", {})).text(), "bread");
  await assert.rejects(edge([]), /code generation disallowed/);
});
