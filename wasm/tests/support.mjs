// Starts the Worker under miniflare, and speaks to it.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options, urls } from "../miniflare/options.mjs";

export const FOLDER = path.resolve(process.env.IFMATCH_WORKER ?? path.join(import.meta.dirname, "../../target/worker"));

// A running Worker, ended with the test `t`. What `settings` are: see `options`.
export async function start(t, settings = {}) {
  const miniflare = new Miniflare(options({ folder: FOLDER, ...settings }));
  t.after(() => miniflare.dispose());
  const { blobs: url } = await urls(miniflare);
  return { url, fetch: (target, init) => ask(url, target, init) };
}

// Sends the request as it is, without the coding that fetch asks for by itself, on a connection of its own. The runtime closes a
// connection that is idle for 5 seconds. If its thread is held up for that long, it does so without a look at the request that
// came meanwhile.
export function ask(url, target, init = {}) {
  const headers = { "accept-encoding": "identity", connection: "close", ...init.headers };
  return fetch(new URL(target, url), { ...init, headers });
}

// An empty folder, gone with the test.
export function folder(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ifmatch-worker-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

// A folder of modules with one more in front of them: `wrap(env)` gives the bindings that the Worker sees,
// `intercept(request, env)` may answer a request in its place, and `record(object, state)` gives the object that the runtime sees
// in place of a Durable Object. All are texts of functions; `first` is run before all else.
export function interposed(t, settings) {
  const { wrap = "(env) => env", intercept = "() => undefined", record = "(object) => object", first = "" } = settings;
  const there = folder(t);
  fs.cpSync(FOLDER, there, { recursive: true });
  fs.writeFileSync(path.join(there, "first.js"), first);
  fs.writeFileSync(
    path.join(there, "interposed.js"),
    `import "./first.js";
    import Worker, { Records as Inner } from "./entry.js";
    const wrap = ${wrap};
    const intercept = ${intercept};
    const record = ${record};
    export default {
      ...Worker,
      async fetch(request, env, context) {
        const wrapped = wrap(env);
        return intercept(request, wrapped) ?? Worker.fetch(request, wrapped, context);
      },
    };
    export class Records extends Inner {
      constructor(state, env) {
        super(state, wrap(env));
        return record(this, state);
      }
    }`,
  );
  return { folder: there, entry: "interposed.js" };
}

// The text of a function that gives an object whose methods `on(name, args, call)` has a hand in.
export const BETWEEN = `(object, on) => new Proxy(object, {
  get(object, name) {
    const value = Reflect.get(object, name, object);
    if (typeof value !== "function" || name === "constructor") return value;
    return (...args) => on(name, args, (...args) => value.apply(object, args));
  },
})`;

// What `interposed` takes to count operations of R2 and requests to objects: /-/count tells those since the last time.
export const COUNTING = {
  wrap: `(env) => {
    const between = ${BETWEEN};
    const kinds = { put: "a", list: "a", createMultipartUpload: "a", get: "b", head: "b", getByName: "objects" };
    const count = (name, args, call) => {
      globalThis.counted[kinds[name]] += 1;
      return call(...args);
    };
    globalThis.counted ??= { a: 0, b: 0, objects: 0 };
    return { ...env, BUCKET: between(env.BUCKET, count), RECORDS: between(env.RECORDS, count) };
  }`,
  intercept: `(request) => {
    if (!request.url.endsWith("/-/count")) return;
    const counted = globalThis.counted;
    globalThis.counted = { a: 0, b: 0, objects: 0 };
    return Response.json(counted);
  }`,
};
