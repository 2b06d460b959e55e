// The package in Cloudflare's runtime: in a Worker of plain JavaScript, and in one on Hono.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Miniflare } from "../../miniflare/node_modules/miniflare/dist/src/index.js";
import { modules } from "../../miniflare/modules.mjs";
import { COMPATIBILITY_DATE } from "../../miniflare/options.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const packages = path.resolve(here, "../node_modules");

/** A package, under the name that Workers import it by. */
function installed(name, folder, entry) {
  const contents = `export * from "/packages/${name}/${entry}";`;
  const its = modules(path.join(packages, name, folder), entry, path.posix.join("/packages", name));
  return [{ type: "ESModule", path: path.posix.join("/", name), contents }, ...its];
}

async function run(worker, others, check, settings = {}) {
  const entry = fs.readFileSync(path.join(here, "workers", worker), "utf8").replace(/from "(\w+)"/g, 'from "/$1"');
  const runtime = new Miniflare({
    modulesRoot: "/",
    modules: [{ type: "ESModule", path: "/entry.js", contents: entry }, ...others],
    compatibilityDate: COMPATIBILITY_DATE,
    host: "127.0.0.1",
    port: 0,
    cf: false,
    telemetry: { enabled: false },
    ...settings,
  });
  try {
    const url = new URL("/note", await runtime.ready);
    await check((init = {}) => fetch(url, { ...init, headers: { "accept-encoding": "identity", ...init.headers } }));
  } finally {
    await runtime.dispose();
  }
}

const ifmatch = installed("ifmatch", ".", "workerd.js");

test("a Worker in plain JavaScript answers 304, 206 and 416", async () => {
  await run("plain.mjs", ifmatch, async (ask) => {
    const whole = await ask();
    const etag = whole.headers.get("etag");
    assert.equal(await whole.text(), "hello");
    assert.equal((await ask({ headers: { "if-none-match": `W/"x", W/${etag}` } })).status, 304);
    assert.equal((await ask({ headers: { "if-match": `W/${etag}` } })).status, 412);
    // The runtime decodes fields as UTF-8, and this is not UTF-8.
    assert.equal((await ask({ headers: { "if-none-match": '"\u00e9"' } })).status, 200);
    const part = await ask({ headers: { range: "bytes=1-2", "if-range": etag } });
    assert.deepEqual([part.status, await part.text(), part.headers.get("content-range")], [206, "el", "bytes 1-2/5"]);
    const beyond = await ask({ headers: { range: "bytes=5-" } });
    assert.deepEqual([beyond.status, beyond.headers.get("content-range")], [416, "bytes */5"]);
  });
});

test("the second of two editors gets 412 from a Worker on Hono", async () => {
  await run("hono.mjs", [...ifmatch, ...installed("hono", "dist", "index.js")], async (ask) => {
    const etag = (await ask()).headers.get("etag");
    assert.equal((await ask({ method: "PUT", body: "mine" })).status, 428);
    assert.equal((await ask({ method: "PUT", body: "mine", headers: { "if-match": etag } })).status, 204);
    assert.equal((await ask({ method: "PUT", body: "theirs", headers: { "if-match": etag } })).status, 412);
    assert.equal(await (await ask()).text(), "mine");
  });
});

test("the README's example is the Worker that is tested", () => {
  const readme = fs.readFileSync(path.join(here, "../package/README.md"), "utf8");
  const [, example] = /```js\n(.*?)```/s.exec(readme);
  assert.equal(example, fs.readFileSync(path.join(here, "workers/r2.mjs"), "utf8"));
});

test("a Worker over R2 reads parts of one version and writes on a condition", async () => {
  const check = async (ask) => {
    const put = (body, headers) => ask({ method: "PUT", body, headers });
    assert.equal((await ask()).status, 404);
    assert.equal((await put("one")).status, 428);
    assert.equal((await put("one", { "if-match": "*" })).status, 412);
    const created = await put("hello", { "if-none-match": "*" });
    const etag = created.headers.get("etag");
    assert.equal(created.status, 201);
    assert.equal((await put("late", { "if-none-match": "*" })).status, 412);
    const whole = await ask();
    assert.deepEqual([whole.headers.get("etag"), await whole.text()], [etag, "hello"]);
    assert.equal((await ask({ headers: { "if-none-match": etag } })).status, 304);
    const part = await ask({ headers: { range: "bytes=1-2", "if-range": etag } });
    assert.deepEqual([part.status, await part.text(), part.headers.get("content-range")], [206, "el", "bytes 1-2/5"]);
    const beyond = await ask({ headers: { range: "bytes=9-" } });
    assert.deepEqual([beyond.status, beyond.headers.get("content-range")], [416, "bytes */5"]);
    const unsized = { method: "PUT", body: new Blob(["x"]).stream(), duplex: "half", headers: { "if-match": etag } };
    assert.equal((await ask(unsized)).status, 411);
    const races = await Promise.all(["a", "b", "c", "d"].map((body) => put(body, { "if-match": etag })));
    assert.deepEqual(races.map((race) => race.status).sort(), [204, 412, 412, 412]);
  };
  await run("r2.mjs", ifmatch, check, { r2Buckets: { BUCKET: "objects" } });
});
