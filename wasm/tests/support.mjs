// Starts the Worker under miniflare, and speaks to it.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options } from "../miniflare/options.mjs";

export const FOLDER = path.resolve(process.env.IFMATCH_WORKER ?? path.join(import.meta.dirname, "../../target/worker"));

// A running Worker, ended with the test `t`. What `settings` are: see `options`.
export async function start(t, settings = {}) {
  const miniflare = new Miniflare(options({ folder: FOLDER, ...settings }));
  t.after(() => miniflare.dispose());
  const url = await miniflare.ready;
  return { miniflare, fetch: (target, init) => ask(url, target, init) };
}

// The request as it is, without the coding that fetch asks for by itself.
export function ask(url, target, init = {}) {
  return fetch(new URL(target, url), { ...init, headers: { "accept-encoding": "identity", ...init.headers } });
}

// An empty folder, gone with the test.
export function folder(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ifmatch-worker-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

// A folder of modules that puts something between the runtime and the Worker: `wrap(env)` gives the bindings it sees.
export function interposed(t, wrap) {
  const there = folder(t);
  for (const file of fs.readdirSync(FOLDER)) {
    fs.copyFileSync(path.join(FOLDER, file), path.join(there, file));
  }
  fs.writeFileSync(
    path.join(there, "interposed.js"),
    `import Worker, { Records as Inner } from "./entry.js";
    const wrap = ${wrap};
    export default class extends Worker {
      constructor(context, env) {
        super(context, wrap(env));
      }
    }
    export const Records = Inner;`,
  );
  return { folder: there, entry: "interposed.js" };
}
