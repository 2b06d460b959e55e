// Responses from the isolate's memory: IFMATCH_MAX_STALENESS.
import assert from "node:assert/strict";
import { test } from "node:test";
import { COUNTING, interposed, start } from "./support.mjs";

// A write directly to the bucket simulates another isolate.
const AROUND = `async (request, env) => {
  const { key, text } = await request.json();
  const written = await env.BUCKET.put(key, text);
  return Response.json(written.httpEtag);
}`;

async function worker(t, bindings) {
  const intercept = `(request, env) => (${COUNTING.intercept})(request) ?? (request.url.endsWith("/-/around") ? (${AROUND})(request, env) : undefined)`;
  const { fetch } = await start(t, { ...interposed(t, { wrap: COUNTING.wrap, intercept }), bindings });
  return {
    fetch,
    // Returns the response, and the numbers of calls to the bucket and in total. The isolate remembers for five seconds that a
    // container exists, so a read may also call the container's object.
    asked: async (target, init) => {
      await (await fetch("/-/count")).json();
      const response = await fetch(target, init);
      const text = await response.text();
      const { a, b, objects } = await (await fetch("/-/count")).json();
      return { status: response.status, etag: response.headers.get("etag"), text, bucket: a + b, calls: a + b + objects };
    },
    around: (key, text) => fetch("/-/around", { method: "POST", body: JSON.stringify({ key, text }) }),
  };
}

const put = (text, headers = {}) => ({ method: "PUT", body: text, headers });
const unless = (etag) => ({ headers: { "if-none-match": etag } });

test("without a bound, every response is current", async (t) => {
  const { asked, around } = await worker(t, {});
  const { etag } = await asked("/docs/a", put("first"));
  for (let turn = 0; turn < 3; turn += 1) {
    const { status, bucket, calls } = await asked("/docs/a", unless(etag));
    assert.deepEqual([status, bucket], [304, 1]);
    assert.ok(calls <= 2, `${calls} calls`);
  }
  await around("docs/a", "other");
  const { status, text } = await asked("/docs/a", unless(etag));
  assert.deepEqual([status, text], [200, "other"]);
});

test("within the bound, a reader with the cached version gets 304 without a request to R2", async (t) => {
  const { asked, around } = await worker(t, { IFMATCH_MAX_STALENESS: "600" });
  const { etag } = await asked("/docs/a", put("first"));
  assert.equal((await asked("/docs/a")).bucket, 1);
  for (let turn = 0; turn < 3; turn += 1) {
    const { status, calls, etag: told } = await asked("/docs/a", unless(etag));
    assert.deepEqual([status, calls, told], [304, 0, etag]);
  }
  const head = await asked("/docs/a", { method: "HEAD" });
  assert.deepEqual([head.status, head.etag, head.calls], [200, etag, 0]);

  // After a write elsewhere, readers with the old version still get 304; others get bytes with the tag of those bytes.
  await around("docs/a", "other");
  assert.equal((await asked("/docs/a", unless(etag))).status, 304);
  const whole = await asked("/docs/a");
  assert.deepEqual([whole.status, whole.text], [200, "other"]);
  assert.notEqual(whole.etag, etag);
  // That was a revalidation.
  const { status, text } = await asked("/docs/a", unless(etag));
  assert.deepEqual([status, text], [200, "other"]);
  assert.equal((await asked("/docs/a", unless(whole.etag))).calls, 0);
});

test("a write through the isolate is visible immediately, under every spelling of the name", async (t) => {
  const { asked } = await worker(t, { IFMATCH_MAX_STALENESS: "600" });
  const first = await asked("/docs/a%20b", put("first"));
  await asked("/docs/a%20b");
  assert.equal((await asked("/docs/a%20%62", unless(first.etag))).calls, 0);
  const second = await asked("/docs/%61%20b", put("second", { "if-match": first.etag }));
  assert.equal(second.status, 200);
  const read = await asked("/docs/a%20b", unless(first.etag));
  assert.deepEqual([read.status, read.etag, read.text], [200, second.etag, "second"]);
  assert.equal((await asked("/docs/a%20b", { method: "DELETE" })).status, 204);
  assert.equal((await asked("/docs/a%20b", unless(second.etag))).status, 404);
});

test("writes are decided on the current state", async (t) => {
  const { asked, around } = await worker(t, { IFMATCH_MAX_STALENESS: "600" });
  const { etag } = await asked("/docs/a", put("first"));
  await asked("/docs/a");
  await around("docs/a", "other");
  assert.equal((await asked("/docs/a", put("mine", { "if-match": etag }))).status, 412);
  assert.equal((await asked("/docs/a")).text, "other");
});

test("a reader without access gets nothing from memory", async (t) => {
  const { asked } = await worker(t, { IFMATCH_MAX_STALENESS: "600", IFMATCH_WRITE_TOKEN: "secret" });
  const as = (init, token = "secret") => ({ ...init, headers: { ...init.headers, authorization: `Bearer ${token}` } });
  const { etag } = await asked("/docs/a", as(put("first")));
  await asked("/docs/a", as({}));
  assert.equal((await asked("/docs/a", as(unless(etag)))).status, 304);
  assert.equal((await asked("/docs/a", unless(etag))).status, 401);
  assert.equal((await asked("/docs/a", as(unless(etag), "other"))).status, 401);
});
