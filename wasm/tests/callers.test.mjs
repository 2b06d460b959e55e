// The entry point for other Workers: a Worker that calls the blobs' Worker by a service binding.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";

import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { COMPATIBILITY_DATE, options } from "../miniflare/options.mjs";
import { FOLDER, limit } from "./support.mjs";

/** A Worker whose tests run in it: `/NAME` runs the test of that name with the binding, and returns its result. */
const caller = (methods) => `
  const tests = { ${methods.join(", ")} };
  export default {
    async fetch(request, { BLOBS }) {
      const { pathname } = new URL(request.url);
      return Response.json((await tests[pathname.slice(1)](BLOBS)) ?? null);
    },
  };`;

async function start(t, contents, bindings = {}) {
  const { workers: [blobs], ...settings } = options({ folder: FOLDER, bindings });
  const calling = {
    name: "caller",
    modules: [{ type: "ESModule", path: "caller.js", contents }],
    compatibilityDate: COMPATIBILITY_DATE,
    serviceBindings: { BLOBS: { name: "ifmatch", entrypoint: "Blobs" } },
  };
  const miniflare = new Miniflare({ ...settings, workers: [calling, blobs] });
  t.after(() => miniflare.dispose());
  const url = await miniflare.ready;
  return async (target, init) => {
    const response = await fetch(new URL(target, url), { ...init, signal: limit(target) });
    const text = await response.text();
    assert.notEqual(response.status, 500, text);
    return { status: response.status, body: JSON.parse(text) };
  };
}

const calls = {
  async conditions(blobs) {
    const created = await blobs.put("docs/a", "one", { ifNoneMatch: "*", contentType: "text/plain", metadata: { by: "me" } });
    const again = await blobs.put("docs/a", "two", { ifNoneMatch: "*" });
    // A version of this second has no date yet.
    for (let left = 60; left > 0 && (await blobs.head("docs/a")).lastModified === null; left -= 1) await scheduler.wait(500);
    const found = await blobs.get("docs/a");
    const text = await new Response(found.body).text();
    const unchanged = await blobs.get("docs/a", { ifNoneMatch: created.etag });
    const head = await blobs.head("docs/a");
    const stale = await blobs.delete("docs/a", { ifMatch: '"stale"' });
    const deleted = await blobs.delete("docs/a", { ifMatch: created.etag });
    const gone = [await blobs.get("docs/a"), await blobs.head("docs/a")];
    return { created, again, found, text, unchanged, head, stale, deleted, gone };
  },
  async race(blobs) {
    const { etag } = await blobs.put("docs/race", "start", { size: 5 });
    const writes = Array.from({ length: 8 }, (_, at) => blobs.put("docs/race", String(at), { ifMatch: etag }));
    return (await Promise.all(writes)).map((written) => written.ok || written.status);
  },
  async leases(blobs) {
    const missing = await blobs.acquireLease("docs/b", { seconds: 15 });
    await blobs.put("docs/b", "one");
    const lease = await blobs.acquireLease("docs/b", { seconds: 30, holder: "me" });
    const other = await blobs.acquireLease("docs/b", { seconds: 30 });
    const without = await blobs.put("docs/b", "two");
    const held = await blobs.put("docs/b", "two", { leaseId: lease.id, leaseToken: lease.token });
    const renewed = await blobs.renewLease("docs/b", lease.id);
    const released = await blobs.releaseLease("docs/b", lease.id);
    const endless = await blobs.acquireLease("docs/b", { seconds: -1 });
    const broken = await blobs.breakLease("docs/b");
    const late = await blobs.put("docs/b", "three", { leaseToken: lease.token });
    return { missing, lease, other, without, held, renewed, released, endless, broken, late };
  },
  async streams(blobs) {
    const length = 9 << 20;
    const stream = () => new Response(new Uint8Array(length).fill(7)).body;
    const sized = await blobs.put("docs/sized", stream(), { size: length });
    const plain = await blobs.put("docs/plain", stream());
    const refused = await blobs.put("docs/sized", stream(), { size: length, ifNoneMatch: "*" });
    const lengths = [];
    for (const name of ["docs/sized", "docs/plain"]) {
      const found = await blobs.get(name);
      lengths.push(found.size, (await new Response(found.body).arrayBuffer()).byteLength);
    }
    const part = await blobs.get("docs/sized", { range: { offset: 5, length: 3 } });
    const end = await blobs.get("docs/sized", { range: { suffix: 2 } });
    const parts = [part.size, [...(await new Response(part.body).bytes())], [...(await new Response(end.body).bytes())]];
    return { sized: sized.ok, plain: plain.ok, refused: refused.status, lengths, parts };
  },
  async coded(blobs) {
    const bytes = await new Response(new Response("hello".repeat(99)).body.pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
    await blobs.put("docs/coded", bytes, { contentEncoding: "gzip" });
    const found = await blobs.get("docs/coded");
    return { encoding: found.contentEncoding ?? null, size: found.size, sent: bytes.byteLength, bytes: (await new Response(found.body).bytes()).toBase64() };
  },
  async names(blobs) {
    for (const name of ["docs/a b", "docs/ä/?#%2e", "docs/..a"]) await blobs.put(name, name);
    const texts = [];
    for (const name of ["docs/a b", "docs/ä/?#%2e", "docs/..a"]) texts.push(await new Response((await blobs.get(name)).body).text());
    return texts;
  },
  async errors(blobs) {
    const thrown = async (call) => call().then(() => "nothing", ({ name, message, status, code }) => ({ name, message, status, code }));
    return {
      condition: await thrown(() => blobs.put("docs/a", "x", { ifMatch: undefined })),
      empty: await thrown(() => blobs.put("docs/a", "x", { ifMatch: " " })),
      option: await thrown(() => blobs.put("docs/a", "x", { ifmatch: '"a"' })),
      content: await thrown(() => blobs.put("docs/a", undefined, {})),
      object: await thrown(() => blobs.put("docs/a", { a: 1 })),
      array: await thrown(() => blobs.put("docs/a", [1, 2])),
      map: await thrown(() => blobs.put("docs/a", new Map([["a", 1]]))),
      unquoted: await thrown(() => blobs.put("docs/a", "x", { ifNoneMatch: "abc" })),
      halfQuoted: await thrown(() => blobs.put("docs/a", "x", { ifMatch: '"abc", def' })),
      folder: await thrown(() => blobs.put("docs/../a/b", "x", {})),
      container: await thrown(() => blobs.delete("docs", {})),
      name: await thrown(() => blobs.get(undefined)),
      seconds: await thrown(() => blobs.acquireLease("docs/a", {})),
      tooShort: await thrown(() => blobs.acquireLease("docs/a", { seconds: 5 })),
      part: await thrown(() => blobs.get("docs/a", { range: { offset: 5, length: 0 } })),
      end: await thrown(() => blobs.get("docs/a", { range: { suffix: -5 } })),
      range: await thrown(async () => (await blobs.put("docs/a", "x"), blobs.get("docs/a", { range: { offset: 5 } }))),
    };
  },
};

test("conditional reads and writes", async (t) => {
  const call = await start(t, caller(Object.values(calls)));
  const { body: { created, again, found, text, unchanged, head, stale, deleted, gone } } = await call("/conditions");
  const { etag } = created;
  assert.deepEqual(created, { ok: true, created: true, etag });
  assert.match(etag, /^"[0-9a-f-]+"$/);
  assert.deepEqual([again.ok, again.status, again.code, again.etag], [false, 412, "precondition-failed", etag]);
  const { lastModified } = head;
  assert.ok(Date.now() - new Date(lastModified) < 3_600_000, `${lastModified} is not the last hour`);
  const kept = { ok: true, notModified: false, etag, lastModified, size: 3, contentType: "text/plain", metadata: { by: "me" } };
  assert.deepEqual(head, kept);
  assert.deepEqual({ ...found, body: 0 }, { ...kept, body: 0 });
  assert.equal(text, "one");
  assert.deepEqual([unchanged.ok, unchanged.notModified, unchanged.body, unchanged.etag], [true, true, null, etag]);
  assert.deepEqual([stale.ok, stale.status], [false, 412]);
  assert.match(stale.detail, /Fetch it, merge, and retry/);
  assert.deepEqual(deleted, { ok: true });
  assert.deepEqual(gone.map(({ ok, status }) => [ok, status]), [[false, 404], [false, 404]]);
});

test("of eight callers with one tag, one writes", async (t) => {
  const call = await start(t, caller(Object.values(calls)));
  const { body } = await call("/race");
  assert.deepEqual(body.filter((written) => written === true).length, 1, JSON.stringify(body));
  assert.ok(body.every((written) => written === true || written === 412), JSON.stringify(body));
});

test("leases", async (t) => {
  const call = await start(t, caller(Object.values(calls)));
  const { body } = await call("/leases");
  assert.equal(body.missing.status, 404);
  assert.deepEqual([body.lease.ok, body.lease.remaining], [true, 30]);
  assert.match(body.lease.token, /^\d+$/);
  assert.deepEqual([body.other.status, body.other.code], [409, "LeaseAlreadyPresent"]);
  assert.deepEqual([body.without.status, body.without.code], [412, "LeaseIdMissing"]);
  assert.ok(body.held.ok && body.renewed.ok);
  assert.equal(body.renewed.id, body.lease.id);
  assert.deepEqual(body.released, { ok: true });
  assert.deepEqual([body.endless.ok, body.endless.remaining], [true, null]);
  assert.deepEqual(body.broken, { ok: true, remaining: 0 });
  assert.deepEqual([body.late.status, body.late.code], [412, "LeaseTokenSuperseded"]);
});

test("streams, of known and of unknown length, and parts of them", async (t) => {
  const call = await start(t, caller(Object.values(calls)));
  const length = 9 << 20;
  const { body } = await call("/streams");
  assert.deepEqual(body, { sized: true, plain: true, refused: 412, lengths: [length, length, length, length], parts: [length, [7, 7, 7], [7, 7]] });
});

test("a coded body comes as it was sent", async (t) => {
  const call = await start(t, caller(Object.values(calls)));
  const { body: { encoding, size, sent, bytes } } = await call("/coded");
  assert.deepEqual([encoding, size], ["gzip", sent]);
  assert.equal(gunzipSync(Buffer.from(bytes, "base64")).toString(), "hello".repeat(99));
});

test("any name of a blob reaches that blob, and no other", async (t) => {
  const call = await start(t, caller(Object.values(calls)));
  assert.deepEqual((await call("/names")).body, ["docs/a b", "docs/ä/?#%2e", "docs/..a"]);
});

test("mistakes are errors in words", async (t) => {
  const call = await start(t, caller(Object.values(calls)));
  const { body } = await call("/errors");
  for (const [name, says] of Object.entries({
    condition: /ifMatch must be a non-empty string/,
    empty: /ifMatch must be a non-empty string/,
    option: /"ifmatch" isn't an option here: use ifMatch/,
    content: /content is missing/,
    object: /content must be a string/,
    array: /content must be a string/,
    map: /content must be a string/,
    unquoted: /tags with their quotes/,
    halfQuoted: /tags with their quotes/,
    folder: /container\/name/,
    container: /container\/name/,
    name: /container\/name/,
    seconds: /seconds must be a whole number/,
    part: /length must be at least 1/,
    end: /suffix must be at least 0/,
  })) {
    assert.equal(body[name].name, "TypeError", `${name}: ${JSON.stringify(body[name])}`);
    assert.match(body[name].message, says);
  }
  assert.deepEqual([body.tooShort.name, body.tooShort.status], ["BlobsError", 400]);
  assert.match(body.tooShort.message, /15 to 60/);
  assert.deepEqual([body.range.name, body.range.status], ["BlobsError", 416]);
});

test("callers need no token, and without one this Worker refuses them in words", async (t) => {
  const write = caller([`write: (blobs) => blobs.put("docs/a", "x").catch(({ message }) => message)`]);
  const IFMATCH_DEVELOPMENT = "false";
  const token = await start(t, write, { IFMATCH_DEVELOPMENT, IFMATCH_WRITE_TOKEN: " one , two" });
  assert.equal((await token("/write")).body.ok, true);
  const signed = await start(t, write, { IFMATCH_DEVELOPMENT, IFMATCH_ACCOUNTS: "one:c2VjcmV0" });
  assert.match((await signed("/write")).body, /^401 .*IFMATCH_WRITE_TOKEN/);
  const none = await start(t, write, { IFMATCH_DEVELOPMENT });
  assert.match((await none("/write")).body, /^503 not-set-up/);
});

test("the example counts every visit, and writes one report at a time", async (t) => {
  const file = path.join(import.meta.dirname, "../../examples/worker_caller/src/index.js");
  const call = await start(t, fs.readFileSync(file, "utf8"));
  const visits = await Promise.all(Array.from({ length: 4 }, () => call("/visits", { method: "POST" })));
  assert.deepEqual(visits.map(({ body }) => body.visits).sort(), [1, 2, 3, 4]);
  const reports = await Promise.all(Array.from({ length: 2 }, () => call("/report", { method: "POST" })));
  for (const { status, body } of reports) assert.ok(status === 200 || body.code === "LeaseAlreadyPresent", JSON.stringify(body));
  assert.ok(reports.some(({ status }) => status === 200));
});
