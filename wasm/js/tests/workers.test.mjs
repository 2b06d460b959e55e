// The package in Cloudflare's runtime: in a Worker of plain JavaScript, and in one on Hono.
import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Miniflare } from "../../miniflare/node_modules/miniflare/dist/src/index.js";
import { modules } from "../../miniflare/modules.mjs";
import { COMPATIBILITY_DATE } from "../../miniflare/options.mjs";

import express from "./workers/express.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const packages = path.resolve(here, "../node_modules");

/** A package, under the names that Workers import it by. */
function installed(name, folder, entry, others = []) {
  const from = (file) => `export * from "/packages/${name}/${file}";`;
  const its = modules(path.join(packages, name, folder), entry, path.posix.join("/packages", name));
  // The package imports itself by name.
  const own = its.map((its) => (its.type === "ESModule" ? { ...its, contents: its.contents.replace(`from "${name}"`, `from "/${name}"`) } : its));
  const named = Object.entries({ [name]: entry, ...others });
  return [...named.map(([name, file]) => ({ type: "ESModule", path: path.posix.join("/", name), contents: from(file) })), ...own];
}

function run(worker, others, check, settings) {
  const entry = fs.readFileSync(path.join(here, "workers", worker), "utf8").replace(/from "(\w[\w/]*)"/g, 'from "/$1"');
  return runModules([{ type: "ESModule", path: "/entry.js", contents: entry }, ...others], check, settings);
}

async function runModules(modules, check, settings = {}) {
  const runtime = new Miniflare({
    modulesRoot: "/",
    modules,
    compatibilityDate: COMPATIBILITY_DATE,
    host: "127.0.0.1",
    port: 0,
    cf: false,
    telemetry: { enabled: false },
    ...settings,
  });
  try {
    const url = new URL("/note", await runtime.ready);
    const ask = (init = {}) => fetch(url, { ...init, headers: { "accept-encoding": "identity", ...init.headers } });
    await check(ask, runtime);
  } finally {
    await runtime.dispose();
  }
}

const ifmatch = installed("ifmatch", ".", "workerd.js", { "ifmatch/fetch": "fetch.js", "ifmatch/hono": "hono.js" });

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

test("the README's examples, also bundled by Wrangler, refuse the second of two editors", async () => {
  const check = async (ask) => {
    const put = (body, headers) => ask({ method: "PUT", body, headers });
    assert.equal((await put("one", {})).status, 428);
    assert.equal((await put("one", { "if-match": "*" })).status, 412);
    const { status, headers } = await put("one", { "if-none-match": "*" });
    const etag = headers.get("etag");
    assert.equal(status, 204);
    assert.equal((await ask({ headers: { "if-none-match": etag } })).status, 304);
    const head = await ask({ method: "HEAD" });
    assert.deepEqual([head.status, head.headers.get("etag")], [200, etag]);
    const races = await Promise.all(["a", "b", "c", "d"].map((body) => put(body, { "if-match": etag })));
    assert.deepEqual(races.map((race) => race.status).sort(), [204, 412, 412, 412]);
  };
  await run("notes.mjs", ifmatch, check);
  await runModules(modules(process.env.IFMATCH_BUNDLED ?? path.resolve(here, "../../../target/npm/bundled"), "notes.js", "/"), check);
  const hono = async (ask, runtime) => {
    const database = await runtime.getD1Database("DB");
    await database.exec("CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT, version TEXT)");
    await check(ask);
    // A tag of a note that was deleted is none of the note that is created anew.
    const old = (await ask()).headers.get("etag");
    assert.equal((await ask({ method: "DELETE", headers: { "if-match": old } })).status, 204);
    assert.equal((await ask({ method: "DELETE", headers: { "if-match": old } })).status, 412);
    assert.equal((await ask({ method: "PUT", body: "new", headers: { "if-none-match": "*" } })).status, 204);
    assert.equal((await ask({ headers: { "if-none-match": old } })).status, 200);
    assert.equal((await ask({ method: "PUT", body: "late", headers: { "if-match": old } })).status, 412);
    assert.equal(await (await ask()).text(), "new");
  };
  const server = express.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const url = `http://127.0.0.1:${server.address().port}/note`;
    // fetch sends no-cache along with a condition, which asks Express for the whole response.
    const others = { connection: "close", "cache-control": "max-age=0" };
    const created = await fetch(url.replace("note", "other"), { method: "PUT", body: "a", headers: { "if-none-match": "*" } });
    const asked = await fetch(created.url, { headers: { "if-none-match": created.headers.get("etag") } });
    assert.deepEqual([asked.status, await asked.text()], [200, "a"], "as the README says");
    await check((init = {}) => fetch(url, { ...init, headers: { ...others, ...init.headers } }));
  } finally {
    server.close();
  }
  await run("app.mjs", [...ifmatch, ...installed("hono", "dist", "index.js")], hono, { d1Databases: { DB: "notes" } });
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
    const head = await ask({ method: "HEAD" });
    assert.deepEqual([head.status, head.headers.get("etag"), head.headers.get("content-length")], [200, etag, "5"]);
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
