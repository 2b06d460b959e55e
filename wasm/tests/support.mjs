// Starts the Worker under miniflare, and sends requests.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options, urls } from "../miniflare/options.mjs";

export const FOLDER = path.resolve(process.env.IFMATCH_WORKER ?? path.join(import.meta.dirname, "../../target/worker"));

// Starts a Worker, and stops it after the test `t`. For `settings`, see `options`.
export async function start(t, settings = {}) {
  const miniflare = new Miniflare(options({ folder: FOLDER, ...settings }));
  t.after(() => miniflare.dispose());
  const { blobs: url } = await urls(miniflare);
  return { url, fetch: (target, init) => ask(url, target, init) };
}

// Sends a request without fetch's own Accept-Encoding, on a new connection. The runtime closes a connection that is idle for 5
// seconds, and if its thread is blocked for that long, even one with a pending request. The limit covers the response's body.
export function ask(url, target, init = {}) {
  const headers = { "accept-encoding": "identity", connection: "close", ...init.headers };
  const late = limit(`${init.method ?? "GET"} ${target}`);
  const signal = init.signal ? AbortSignal.any([init.signal, late]) : late;
  return fetch(new URL(target, url), { ...init, headers, signal });
}

// Maximum time in seconds for a request with its body, generous for a busy machine, and beyond the limits of the Worker, whose errors
// say more.
export const LIMIT = 600;

// Returns a signal that aborts after the limit, with an error that names what was waited for.
export function limit(subject) {
  const stop = new AbortController();
  setTimeout(() => stop.abort(new Error(`${subject}: not done within ${LIMIT} s`)), LIMIT * 1000).unref();
  return stop.signal;
}

// Runs `work` for each item, eight at a time. The runtime closes a connection 15 seconds after accepting it if it has not
// read a request by then; on a busy machine, that happens with a hundred requests at once.
export async function forEach(items, work) {
  const left = items.values();
  const run = async () => {
    for (const item of left) await work(item);
  };
  await Promise.all(Array.from({ length: 8 }, run));
}

// Creates an empty folder, removed after the test.
export function folder(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ifmatch-worker-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

// Creates a folder of modules with an additional entry: `wrap(env)` returns the bindings for the Worker, `intercept(request, env)` may
// answer a request in its place, and `record(object, state)` returns the object that the runtime uses as Durable Object. All are
// sources of functions; `first` runs before everything else.
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

// Source of a function that returns an object with its methods intercepted by `on(name, args, call)`.
export const BETWEEN = `(object, on) => new Proxy(object, {
  get(object, name) {
    const value = Reflect.get(object, name, object);
    if (typeof value !== "function" || name === "constructor") return value;
    return (...args) => on(name, args, (...args) => value.apply(object, args));
  },
})`;

// Settings of `interposed` that count operations of R2 and requests to objects: /-/count returns those since the last call.
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

// A function for `intercept`: a request to /-/set?NAME=NUMBER sets `globalThis.NAME`, and returns the previous value.
export const SET = `(request) => {
  const { pathname, searchParams } = new URL(request.url);
  if (pathname !== "/-/set") return;
  const before = {};
  for (const [name, value] of searchParams) {
    before[name] = globalThis[name] ?? 0;
    globalThis[name] = Number(value);
  }
  return Response.json(before);
}`;
export const set = async (fetch, name, value) => (await (await fetch(`/-/set?${name}=${value}`)).json())[name];

// A function for `wrap`: as long as `globalThis.hold` is 1, each write to the bucket waits, and sets `globalThis.held` to 1.
export const HOLDING = `(env) => {
  const between = ${BETWEEN};
  const hold = async (name, args, call) => {
    while (name === "put" && globalThis.hold > 0) {
      globalThis.held = 1;
      await scheduler.wait(10);
    }
    return call(...args);
  };
  return { ...env, BUCKET: between(env.BUCKET, hold) };
}`;

// Sends a request, waits until its write to the bucket waits, and returns a function that lets it continue and returns its response.
export async function held(fetch, target, init) {
  await set(fetch, "hold", 1);
  const response = fetch(target, init);
  const late = limit(`${init?.method ?? "GET"} ${target} reaches the bucket`);
  while ((await set(fetch, "held", 0)) === 0) late.throwIfAborted();
  return async () => {
    await set(fetch, "hold", 0);
    return response;
  };
}
