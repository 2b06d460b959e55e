// CPU time until the first response, as a share of an empty Worker's: a slow or busy machine affects both.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options, urls } from "../miniflare/options.mjs";
import { cpuTime, median } from "../bench/load.mjs";
import { FOLDER, ask, folder } from "./support.mjs";

const BUDGET = JSON.parse(fs.readFileSync(path.join(import.meta.dirname, "../budget.json"), "utf8"))["start-up share"];
const ROUNDS = 10;
const NOTHING = `export default { fetch() { return new Response(); } };
export class Records {}`;

test("the Worker starts within its budget", async (t) => {
  const nothing = folder(t);
  fs.writeFileSync(path.join(nothing, "entry.js"), NOTHING);
  const took = { nothing: [], worker: [] };
  for (let round = 0; round < ROUNDS; round += 1) {
    took.nothing.push(await started(nothing));
    took.worker.push(await started(FOLDER));
  }
  const own = median(took.worker) - median(took.nothing);
  const share = own / median(took.nothing);
  t.diagnostic(`${own} ms more than an empty Worker, ${share.toFixed(2)} of its time`);
  assert.ok(share <= BUDGET, `${share.toFixed(2)} exceeds ${BUDGET} in wasm/budget.json`);
});

// Starts a runtime, sends one request, and returns the CPU time in ms.
async function started(folder) {
  const miniflare = new Miniflare(options({ folder }));
  try {
    const { blobs: url } = await urls(miniflare);
    await (await ask(url, "/-/health")).text();
    const pid = execFileSync("pgrep", ["-P", String(process.pid), "workerd"]).toString().trim();
    return cpuTime(pid);
  } finally {
    await miniflare.dispose();
  }
}
