// Responses of a Worker with missing or invalid settings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { start } from "./support.mjs";

const wrong = {
  "no bucket": [{ worker: { r2Buckets: {} } }, /BUCKET.*\[\[r2_buckets\]\]/],
  "a text in place of the bucket": [{ worker: { r2Buckets: {} }, bindings: { BUCKET: "blobs" } }, /BUCKET.*R2 bucket/],
  "no records": [{ worker: { durableObjects: {} } }, /RECORDS.*\[\[durable_objects.bindings\]\]/],
  "a bucket in place of the records": [
    { worker: { durableObjects: {}, r2Buckets: { BUCKET: "blobs", RECORDS: "blobs" } } },
    /RECORDS.*Durable Object/,
  ],
  "no credentials": [{ bindings: { IFMATCH_DEVELOPMENT: "false" } }, /wrangler secret put/],
  "an invalid setting": [{ bindings: { IFMATCH_SERVES: "queues" } }, /IFMATCH_SERVES/],
  "an unknown jurisdiction": [{ bindings: { IFMATCH_JURISDICTION: "europe" } }, /IFMATCH_JURISDICTION must be one of eu, /],
  "an unknown location": [{ bindings: { IFMATCH_LOCATION_HINT: "eu" } }, /IFMATCH_LOCATION_HINT must be one of wnam, /],
  "a flag that is a list": [{ bindings: { IFMATCH_REQUIRE_CONDITIONS: [true, true] } }, /IFMATCH_REQUIRE_CONDITIONS/],
  "a token that is a table": [{ bindings: { IFMATCH_WRITE_TOKEN: { token: "writer" } } }, /token/],
};

for (const [name, [settings, says]] of Object.entries(wrong)) {
  test(`${name}: all requests are rejected, and the health check gives the reason`, async (t) => {
    const { fetch } = await start(t, settings);
    for (const [target, init] of [
      ["/docs/a.txt", {}],
      ["/docs/a.txt", { method: "PUT", body: "x" }],
      ["/-/health", {}],
    ]) {
      const response = await fetch(target, init);
      assert.equal(response.status, 503, target);
      const problem = await response.json();
      assert.equal(problem.type, "urn:ifmatch:problem:not-set-up");
      const saysWhy = says.test(problem.detail);
      assert.equal(saysWhy, target === "/-/health", problem.detail);
    }
  });
}

test("requests with the token are admitted", async (t) => {
  const bindings = { IFMATCH_WRITE_TOKEN: "writer", IFMATCH_READ_TOKEN: "reader" };
  const { fetch } = await start(t, { bindings });
  const put = (headers) => fetch("/docs/a.txt", { method: "PUT", body: "x", headers });
  assert.equal((await put({})).status, 401);
  assert.equal((await put({ authorization: "Bearer other" })).status, 401);
  assert.equal((await put({ authorization: "Bearer reader" })).status, 403);
  assert.equal((await put({ authorization: "Bearer writer" })).status, 201);
  assert.equal((await fetch("/docs/a.txt")).status, 401);
  assert.equal((await fetch("/docs/a.txt", { headers: { authorization: "Bearer reader" } })).status, 200);
  assert.equal((await fetch("/-/health")).status, 200);
});

test("settings may be numbers and booleans", async (t) => {
  const bindings = { IFMATCH_REQUIRE_CONDITIONS: true, IFMATCH_MAX_BODY_SIZE: 5 };
  const { fetch } = await start(t, { bindings });
  const put = (body, headers) => fetch("/docs/a.txt", { method: "PUT", body, headers });
  assert.equal((await put("x", {})).status, 428);
  assert.equal((await put("longer", { "if-none-match": "*" })).status, 413);
  assert.equal((await put("short", { "if-none-match": "*" })).status, 201);
});
