// Operations of R2 and requests to Durable Objects per request: the table in ../README.md.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { COUNTING, interposed, start } from "./support.mjs";

const requests = [
  ["PUT, a new blob", "PUT", "/docs/new", {}],
  ["PUT on a condition, replaced", "PUT", "/docs/there", { "if-match": "tag" }],
  ["PUT, 412", "PUT", "/docs/there", { "if-match": '"other"' }],
  ["GET", "GET", "/docs/there", {}],
  ["GET, 304", "GET", "/docs/there", { "if-none-match": "tag" }],
  ["HEAD", "HEAD", "/docs/there", {}],
  ["GET of a listing, of two blobs", "GET", "/docs", {}],
  ["DELETE", "DELETE", "/docs/there", {}],
];

test("requests cost as much as in the README's table", async (t) => {
  const { fetch } = await start(t, interposed(t, COUNTING));
  const rows = [];
  await fetch("/docs/there", { method: "PUT", body: "x" });
  for (const [name, method, target, conditions] of requests) {
    const tag = (await fetch("/docs/there", { method: "HEAD" })).headers.get("etag");
    const headers = Object.fromEntries(Object.entries(conditions).map(([name, value]) => [name, value === "tag" ? tag : value]));
    await fetch("/-/count");
    const response = await fetch(target, { method, headers, body: method === "PUT" ? "x" : undefined });
    await response.text();
    const { a, b, objects } = await (await fetch("/-/count")).json();
    rows.push(`| ${name} | ${a} | ${b} | ${objects} |`);
  }
  const readme = fs.readFileSync(path.join(import.meta.dirname, "../README.md"), "utf8");
  const missing = rows.filter((row) => !readme.includes(row));
  assert.deepEqual(missing, [], `wasm/README.md should say:\n${rows.join("\n")}`);
});
