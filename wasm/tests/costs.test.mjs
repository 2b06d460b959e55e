// Operations of R2 and requests to Durable Objects per request: the table in ../../docs/worker.md.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options, urls } from "../miniflare/options.mjs";
import { COUNTING, ask, folder, interposed, start } from "./support.mjs";

const requests = [
  ["PUT of a new blob", "PUT", "/docs/new", {}],
  ["conditional PUT, replaced", "PUT", "/docs/there", { "if-match": "tag" }],
  ["conditional PUT, 412", "PUT", "/docs/there", { "if-match": '"other"' }],
  ["GET", "GET", "/docs/there", {}],
  ["GET, 304", "GET", "/docs/there", { "if-none-match": "tag" }],
  ["HEAD", "HEAD", "/docs/there", {}],
  ["listing of 1,000 blobs", "GET", "/many?limit=1000", {}],
  ["conditional DELETE", "DELETE", "/docs/there", { "if-match": "tag" }],
];

/** Number of attempts, of which the cheapest counts: an isolate remembers a container for five seconds, and a machine may be slower. */
const ATTEMPTS = 5;

/** Starts an isolate on a state, and returns a function that sends requests. */
async function isolate(t, persist, bindings) {
  const miniflare = new Miniflare(options({ ...interposed(t, COUNTING), persist, bindings }));
  let stopped;
  const stop = () => (stopped ??= miniflare.dispose());
  t.after(stop);
  const { blobs } = await urls(miniflare);
  return { miniflare, stop, fetch: (target, init) => ask(blobs, target, init) };
}

/** Returns the status and the counts of a request. */
async function count(fetch, [, method, target, conditions], tag) {
  const headers = Object.fromEntries(Object.entries(conditions).map(([name, value]) => [name, value === "tag" ? tag : value]));
  await fetch("/-/count");
  const response = await fetch(target, { method, headers, body: method === "PUT" ? "x" : undefined });
  await response.text();
  const { a, b, objects } = await (await fetch("/-/count")).json();
  return { status: response.status, counts: [a, b, objects] };
}

async function costs(t, bindings) {
  const persist = folder(t);
  const first = await isolate(t, persist, bindings);
  const bucket = await first.miniflare.getR2Bucket("BUCKET", "ifmatch");
  for (let at = 0; at < 1_000; at += 1) await bucket.put(`many/${String(at).padStart(4, "0")}`, "x");
  await (await first.fetch("/many?limit=1")).text();
  const put = async (fetch) => (await fetch("/docs/there", { method: "PUT", body: "x" })).headers.get("etag");
  const rows = [];
  let { stop, fetch } = first;
  for (const request of requests) {
    const expect = request[0].includes("412") ? 412 : request[0].includes("304") ? 304 : undefined;
    const judged = ({ status, counts }) => {
      assert.ok(expect ? status === expect : status < 300, `${request[0]}: ${status}`);
      return counts;
    };
    let warm;
    for (let nth = 0; nth < ATTEMPTS; nth += 1) {
      await fetch("/docs/new", { method: "DELETE" });
      const tag = await put(fetch);
      const counts = judged(await count(fetch, request, tag));
      if (!warm || counts[2] < warm[2]) warm = counts;
    }
    await fetch("/docs/new", { method: "DELETE" });
    const tag = await put(fetch);
    await stop();
    ({ stop, fetch } = await isolate(t, persist, bindings));
    rows.push({ cold: judged(await count(fetch, request, tag)), warm });
  }
  return rows;
}

test("requests cost as much as in the table", async (t) => {
  const on = await costs(t, {});
  const off = await costs(t, { IFMATCH_LEASES: "off" });
  const shown = ([a, b, objects]) => `${a} A, ${b} B, ${objects} DO`;
  const rows = requests.map(([name], at) => `| ${name} | ${[on[at].cold, on[at].warm, off[at].warm].map(shown).join(" | ")} |`);
  const page = fs.readFileSync(path.join(import.meta.dirname, "../../docs/worker.md"), "utf8");
  const missing = rows.filter((row) => !page.includes(row));
  assert.deepEqual(missing, [], `docs/worker.md should say:\n${rows.join("\n")}`);
});

// Rows are billed, too, each entry of an index as another one.
test("a new blob writes five rows, and a replacement two", async (t) => {
  const record = `(object, state) => {
    const prototype = Object.getPrototypeOf(state.storage.sql);
    if (globalThis.rows !== undefined) return object;
    globalThis.rows = 0;
    const { exec } = prototype;
    prototype.exec = function (...args) {
      const cursor = exec.apply(this, args);
      globalThis.rows += cursor.rowsWritten;
      return cursor;
    };
    return object;
  }`;
  const intercept = `(request) => {
    if (!request.url.endsWith("/-/rows")) return;
    const { rows = 0 } = globalThis;
    globalThis.rows &&= 0;
    return Response.json(rows);
  }`;
  const { fetch } = await start(t, interposed(t, { record, intercept }));
  const rows = async (target, headers) => {
    await fetch("/-/rows");
    const written = await fetch(target, { method: "PUT", body: "x", headers });
    assert.ok(written.ok, String(written.status));
    return { etag: written.headers.get("etag"), rows: await (await fetch("/-/rows")).json() };
  };
  // Creates the container.
  await rows("/docs/first", {});
  const created = await rows("/docs/a", { "if-none-match": "*" });
  const replaced = await rows("/docs/a", { "if-match": created.etag });
  assert.deepEqual([created.rows, replaced.rows], [5, 2]);
});
