// The TypeScript client beyond the scenarios: copies, removal, codecs, signals, locks, its size, and the runtimes that it's for.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";

import * as esbuild from "esbuild";
import { Client, ClientError, json, text } from "ifmatch/client";

import { Miniflare } from "../../../miniflare/node_modules/miniflare/dist/src/index.js";
import { COMPATIBILITY_DATE } from "../../../miniflare/options.mjs";
import { bun, deno } from "../programs.mjs";
import { count, read, save } from "../workers/client.mjs";
import { EXPECTED } from "./add.mjs";
import { serve } from "./server.mjs";

const HERE = import.meta.dirname;
/** Far beyond the time of a test. */
const LIMIT = 300_000;
/** The promise of the README: 6 KB compressed. */
const SIZE = 6_000;

const kind = (expected) => (error) => error instanceof ClientError && error.kind === expected;
const limited = (name, run) => test(name, { timeout: LIMIT }, run);

test("the client stays below 6 KB compressed", async () => {
  const options = { bundle: true, minify: true, format: "esm", target: "es2022", write: false };
  const { outputFiles } = await esbuild.build({ stdin: { contents: 'export * from "ifmatch/client"', resolveDir: HERE }, ...options });
  const size = gzipSync(outputFiles[0].contents, { level: 9 }).length;
  assert.ok(size < SIZE && size > 1_000, `${size} bytes`);
  assert.ok(!outputFiles[0].text.includes("WebAssembly"));
});

limited("the README's example keeps both texts, and counts", async (t) => {
  const server = await serve(t);
  const empty = await read(server.url);
  await Promise.all([save(empty, "mine"), save(empty, "theirs")]);
  assert.deepEqual((await read(server.url)).value.text.split("\n").sort(), ["mine", "theirs"]);
  await Promise.all([count(server.url), count(server.url)]);
  assert.equal((await read(server.url)).value.count, 2);
});

limited("an unchanged document isn't transferred again, and a copy isn't shared", async (t) => {
  const server = await serve(t, { document: 5 });
  const client = new Client();
  const first = await client.read(server.url);
  first.value.n = 99;
  const second = await client.read(server.url);
  assert.deepEqual([second.value.n, second.etag], [5, first.etag]);
  assert.deepEqual(server.state.requests.map(({ headers }) => headers["if-none-match"]), [undefined, first.etag]);
  await new Client().read(server.url);
  const { headers } = server.state.requests.at(-1);
  assert.deepEqual([headers["if-none-match"], headers["cache-control"]], [undefined, "no-cache"], "clients share nothing");
  server.rival();
  assert.equal((await client.read(server.url)).value.n, 15);
});

limited("a read after a write returns what the server has stored", async (t) => {
  const server = await serve(t, { document: 5, behaviour: "completes" });
  const client = new Client();
  const saved = await client.save(await client.read(server.url), { n: 6 });
  assert.equal(saved.outcome, "saved");
  const read = await client.read(server.url);
  assert.deepEqual([read.etag, read.value], [saved.version.etag, { n: 6, by: "server" }]);
});

limited("a version that was stored is saved later, by a client that has no copy", async (t) => {
  const server = await serve(t, { document: 5 });
  const stored = JSON.stringify(await new Client().read(server.url));
  const saved = await new Client().save(JSON.parse(stored), { n: 6 });
  assert.deepEqual([saved.outcome, server.number()], ["saved", 6]);
  const late = await new Client().save(JSON.parse(stored), { n: 7 });
  assert.deepEqual([late.outcome, late.base.n, late.theirs.value.n, late.mine.n, server.number()], ["conflict", 5, 6, 7, 6]);
});

limited("a value that a page changes in place is no base, even if the page has read again since", async (t) => {
  const server = await serve(t, { document: 5 });
  const client = new Client();
  const shown = await client.read(server.url);
  server.rival();
  await client.read(server.url);
  shown.value.n = 6;
  const late = await client.save(shown, shown.value);
  assert.deepEqual([late.outcome, late.base.n, late.theirs.value.n, late.mine.n], ["conflict", 5, 15, 6]);
});

limited("only the version that was read is removed", async (t) => {
  const server = await serve(t, { document: 5 });
  const client = new Client();
  const read = await client.read(server.url);
  server.rival();
  const late = await client.remove(read);
  assert.deepEqual([late.outcome, late.theirs.value.n, server.number()], ["conflict", 15, 15]);
  assert.deepEqual(await client.remove(late.theirs), { outcome: "removed" });
  assert.deepEqual(await client.read(server.url), { url: server.url, etag: null, value: undefined });
  assert.equal((await client.remove(late.theirs)).outcome, "conflict", "somebody else may have removed it");
});

limited("a removal without a response isn't taken for one's own", async (t) => {
  for (const [writes, outcome] of [["drop", "removed"], ["write drop", "unknown"], ["rival drop", "unknown"]]) {
    const server = await serve(t, { document: 5, writes: [writes.split(" ")] });
    const client = new Client();
    assert.equal((await client.remove(await client.read(server.url))).outcome, outcome, writes);
  }
});

limited("an update may leave the document as it is, and may wait", async (t) => {
  const server = await serve(t, { document: 5 });
  const client = new Client();
  assert.equal((await client.update(server.url, () => undefined)).value.n, 5);
  assert.equal(server.state.requests.length, 1);
  const both = [1, 2].map((by) => client.update(server.url, async ({ n }) => ({ n: await Promise.resolve(n + by) })));
  await Promise.all(both);
  assert.equal(server.number(), 8);
  const conflicts = server.state.requests.filter(({ method, headers }) => method === "PUT" && /^"v/.test(headers["if-match"]) && !headers["if-none-match"]);
  assert.equal(conflicts.length, 2, "updates of one client take turns");
});

limited("a server that is known needs no probe", async (t) => {
  const server = await serve(t, { document: 5 });
  await new Client({ probe: false }).update(server.url, ({ n }) => ({ n: n + 1 }));
  assert.deepEqual(server.state.requests.map(({ method }) => method), ["GET", "PUT"]);
});

limited("header fields are sent with each request, and can change", async (t) => {
  const server = await serve(t, { document: 5 });
  let number = 0;
  const client = new Client({ headers: async (method) => ({ authorization: `Bearer ${(number += 1)}`, "x-method": method }) });
  await client.update(server.url, () => ({ n: 6 }));
  const sent = server.state.requests.map(({ method, headers }) => [method === headers["x-method"], headers.authorization]);
  assert.deepEqual(sent, sent.map((_, at) => [true, `Bearer ${at + 1}`]));
});

limited("a codec decides what a document is", async (t) => {
  const server = await serve(t);
  const client = new Client();
  const written = await client.create(server.url, "plain", { codec: text });
  assert.deepEqual([written.outcome, server.state.content, written.version.value], ["saved", "plain", "plain"]);
  await assert.rejects(client.read(server.url), kind("refused"));
  const number = json((value) => (typeof value === "number" ? value : assert.fail("not a number")));
  await assert.rejects(client.update(server.url, () => 1, { codec: number }), kind("refused"));
  const bytes = { type: "application/octet-stream", encode: (value) => value, decode: (value) => value };
  const read = await client.read(server.url, { codec: bytes });
  await client.save(read, new Uint8Array([65, 66]), { codec: bytes });
  assert.equal(server.state.content, "AB");
});

limited("an aborted operation ends with the signal's reason", async (t) => {
  const server = await serve(t, { document: 5, writes: [["drop"]], always: true });
  const client = new Client();
  const over = new Error("over");
  await assert.rejects(client.read(server.url, { signal: AbortSignal.abort(over) }), over);
  const end = new AbortController();
  const update = client.update(server.url, ({ n }) => ({ n: n + 1 }), { signal: end.signal });
  setTimeout(() => end.abort(over), 100);
  await assert.rejects(update, over);
  // The next one doesn't wait for it.
  server.state.content = null;
  assert.equal((await client.update(server.url, () => undefined)).etag, null);
});

test("an address without a server is the caller's mistake, and so is a wrong value", async () => {
  await assert.rejects(new Client().read("note.json"), TypeError);
  await assert.rejects(new Client({ headers: { "a b": "c" } }).read("http://127.0.0.1:1/"), TypeError);
  await assert.rejects(new Client({ patience: 500 }).read("http://127.0.0.1:1/"), kind("unknown"));
});

/** Adds one without a condition of its own, under a lock. */
async function addLocked(client, url, counter) {
  await client.lock(url, async () => {
    const { now } = counter;
    await new Promise((resolve) => setTimeout(resolve, 5));
    counter.now = now + 1;
  });
}

limited("a lock has one holder at a time, and its fencing token grows", async (t) => {
  const server = await serve(t);
  const counter = { now: 0 };
  await Promise.all(Array.from({ length: 6 }, () => addLocked(new Client(), server.url, counter)));
  assert.equal(counter.now, 6);
  const fences = [];
  for (let turn = 0; turn < 2; turn += 1) await new Client().lock(server.url, ({ fence }) => fences.push(fence));
  assert.ok(fences[1] > fences[0] && Number.isSafeInteger(fences[0]), String(fences));
  const { holder, fence, ttl_ms, held, $ifmatch } = JSON.parse(server.state.content);
  assert.deepEqual([holder, fence, ttl_ms, held, $ifmatch.recent.length > 0], ["", fences[1], 30_000, false, true]);
});

limited("a lock that others hold is waited for, for as long as the caller likes", async (t) => {
  const server = await serve(t);
  const end = new AbortController();
  await new Client().lock(server.url, async (held) => {
    await assert.rejects(new Client().lock(server.url, () => assert.fail("two holders"), { wait: 0 }), kind("contended"));
    const waiting = new Client().lock(server.url, () => assert.fail("two holders"), { signal: end.signal });
    end.abort(new Error("over"));
    await assert.rejects(waiting, /over/);
    assert.equal(held.lost, false);
  });
  assert.equal(await new Client().lock(server.url, () => "work", { wait: 0 }), "work", "it was released");
  await assert.rejects(new Client().lock(server.url, () => assert.fail("work failed")), /work failed/);
  assert.equal(JSON.parse(server.state.content).held, false, "after work that fails, too");
});

limited("a crashed holder's lock is taken over after its time to live, when its own time has ended", async (t) => {
  const server = await serve(t);
  let silent = false;
  const never = (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const holder = new Client({ fetch: (url, init) => (silent ? never(url, init) : fetch(url, init)) });
  let next;
  const first = holder.lock(
    server.url,
    async (held) => {
      silent = true;
      next = new Client().lock(server.url, (other) => [other.fence > held.fence, held.lost, held.signal.aborted]);
      await next;
    },
    { ttl: 3000 },
  );
  await assert.rejects(first, kind("lost"));
  assert.deepEqual(await next, [true, true, true]);
});

limited("a lock that was overwritten is lost at its next renewal", async (t) => {
  const server = await serve(t);
  const lost = new Client().lock(
    server.url,
    async (held) => {
      server.state.content = JSON.stringify({ holder: "an operator", fence: held.fence + 1, ttl_ms: 3000, held: true });
      server.state.version += 1;
      await new Promise((_, reject) => held.signal.addEventListener("abort", () => reject(held.signal.reason)));
    },
    { ttl: 3000 },
  );
  await assert.rejects(lost, kind("lost"));
  assert.equal(JSON.parse(server.state.content).holder, "an operator", "it isn't released");
});

limited("a lock that nobody holds is waited for no longer than the limit, without an answer to its write", async (t) => {
  const server = await serve(t, { writes: [["drop"]], always: true });
  const acquired = new Client().lock(server.url, () => assert.fail("it isn't held"), { ttl: 3000, wait: 1 });
  await assert.rejects(acquired, kind("unknown"));
});

limited("a document keeps the largest fencing token, and rejects smaller ones", async (t) => {
  const server = await serve(t, { document: 5 });
  const client = new Client({ stamps: true });
  const held = (fence, lost = false) => ({ fence, lost, signal: new AbortController().signal });
  const add = (held) => client.update(server.url, ({ n }) => ({ n: n + 1 }), { held });
  await add(held(7));
  await client.update(server.url, ({ n }) => ({ n: n + 1 }));
  await assert.rejects(add(held(6)), kind("lost"));
  await assert.rejects(add(held(8, true)), kind("lost"));
  await add(held(7));
  assert.deepEqual([server.number(), JSON.parse(server.state.content).$ifmatch.fence], [8, 7]);
  assert.equal(server.state.requests.at(-1).headers["lease-token"], "7");
  await assert.rejects(new Client().update(server.url, () => ({ n: 0 }), { held: held(9) }), /option `stamps`/);
});

/** Runs a program, and returns what it prints. */
async function run(program, ...args) {
  const options = { cwd: path.join(HERE, "../.."), timeout: LIMIT, env: { ...process.env, DENO_NO_UPDATE_CHECK: "1" } };
  const ran = promisify(execFile)(program, args, options);
  return JSON.parse((await ran.catch((error) => assert.fail(`${program} failed or took over ${LIMIT} ms: ${error.stderr || error}`))).stdout);
}

const ADD = path.join(HERE, "add.mjs");
for (const [name, start] of Object.entries({
  Node: (url) => run(process.execPath, ADD, url),
  Bun: (url) => run(bun(), "run", ADD, url),
  Deno: (url) => run(deno(), "run", "--no-lock", "--node-modules-dir=manual", "--cached-only", "--allow-net", ADD, url),
})) {
  limited(`${name} runs the client`, async (t) => {
    const server = await serve(t, { document: 5 });
    assert.deepEqual(await start(server.url), EXPECTED);
  });
}

limited("a Worker runs the client", async (t) => {
  const server = await serve(t, { document: 5 });
  const worker = `import { add } from "./add.mjs";
    export default { fetch: async (request) => Response.json(await add(new URL(request.url).searchParams.get("at"))) };`;
  const { outputFiles } = await esbuild.build({ stdin: { contents: worker, resolveDir: HERE }, bundle: true, format: "esm", write: false });
  for (const compatibilityDate of ["2024-06-01", COMPATIBILITY_DATE]) {
    const modules = [{ type: "ESModule", path: "/worker.js", contents: outputFiles[0].text }];
    const runtime = new Miniflare({ modulesRoot: "/", modules, compatibilityDate, host: "127.0.0.1", port: 0, cf: false, telemetry: { enabled: false } });
    t.after(() => runtime.dispose());
    const response = await fetch(`${await runtime.ready}?at=${encodeURIComponent(server.url)}`);
    const got = await response.text();
    assert.equal(got, JSON.stringify(EXPECTED), compatibilityDate);
    server.state.content = JSON.stringify({ n: 5 });
    server.state.version += 1;
  }
});
