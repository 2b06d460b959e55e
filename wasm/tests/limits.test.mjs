// Limits of the real platform that the local runtime lacks. Each is emulated between the Worker and its bindings.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import http from "node:http";
import { test } from "node:test";
import { acquire, signed } from "./azure.mjs";
import { BETWEEN, COUNTING, HOLDING, SET, forEach, held, interposed, limit, set, start } from "./support.mjs";

const put = (fetch, target, body = "x", headers = {}) => fetch(target, { method: "PUT", body, headers });
const text = async (response) => (await response).text();

// Objects that replace the next `lost` answers to one kind of request (its second byte) by exceptions of an overloaded object.
const overloaded = (kind) => ({
  wrap: `(env) => {
    const between = ${BETWEEN};
    const onObject = async (name, args, call) => {
      if (name !== "fetch") return call(...args);
      const asked = new Uint8Array(await args[0].clone().arrayBuffer());
      const done = await call(...args);
      if (asked[1] !== ${kind} || !(globalThis.lost > 0)) return done;
      globalThis.lost -= 1;
      throw Object.assign(new Error("Durable Object is overloaded."), { overloaded: true });
    };
    return { ...env, RECORDS: between(env.RECORDS, (name, args, call) => between(call(...args), onObject)) };
  }`,
  intercept: SET,
});
const [LOAD, SWAP] = [0, 1];

test("a change by an object that then reports overload is not forgotten", async (t) => {
  const { fetch } = await start(t, interposed(t, overloaded(SWAP)));
  await put(fetch, "/docs/a");
  await set(fetch, "lost", 1);
  const id = randomUUID();
  assert.equal((await fetch(...acquire("/docs/a", id))).status, 201);
  assert.equal(await set(fetch, "lost", 0), 0, "an answer was lost");
  assert.equal((await fetch(...acquire("/docs/a", randomUUID()))).status, 409);
  assert.equal((await put(fetch, "/docs/a", "y", { "x-ms-lease-id": id })).status, 200);
  await put(fetch, "/docs/b", "before");
  await set(fetch, "lost", 1);
  assert.equal((await put(fetch, "/docs/b", "after")).status, 200);
  assert.equal(await set(fetch, "lost", 0), 0, "an answer was lost");
  assert.equal((await put(fetch, "/docs/b", "later")).status, 200);
});

test("an overloaded object is not asked again immediately", async (t) => {
  const { fetch } = await start(t, interposed(t, overloaded(LOAD)));
  await put(fetch, "/docs/a", "before");
  await set(fetch, "lost", 10);
  const refused = await put(fetch, "/docs/a", "after");
  assert.deepEqual([refused.status, refused.headers.has("retry-after")], [503, true]);
  assert.equal(await set(fetch, "lost", 0), 9);
  assert.equal(await text(fetch("/docs/a")), "before");
});

// A bucket that rejects the next `refusals` writes over its rate limit.
const RATE = {
  wrap: `(env) => {
    const between = ${BETWEEN};
    const gate = (call) => {
      if (!(globalThis.refusals > 0)) return call();
      globalThis.refusals -= 1;
      throw new Error("put: Reduce your concurrent request rate for the same object. (10058)");
    };
    const onUpload = (name, args, call) => (name === "complete" ? gate(() => call(...args)) : call(...args));
    return {
      ...env,
      BUCKET: between(env.BUCKET, (name, args, call) => {
        if (name === "put" || name === "delete") return gate(() => call(...args));
        const result = call(...args);
        return name === "resumeMultipartUpload" ? between(result, onUpload) : result;
      }),
    };
  }`,
  intercept: SET,
};

for (const [what, body] of [["a body", "x"], ["an upload in parts", Buffer.alloc((8 << 20) + 1, 1)]]) {
  test(`a write over R2's rate limit is retried, and finally rejected: ${what}`, async (t) => {
    const { fetch } = await start(t, interposed(t, RATE));
    await set(fetch, "refusals", 2);
    assert.equal((await put(fetch, "/docs/a", body, { "if-none-match": "*" })).status, 201);
    assert.equal(await set(fetch, "refusals", 1000), 0);
    const refused = await put(fetch, "/docs/a", body);
    assert.deepEqual([refused.status, refused.headers.has("retry-after")], [503, true]);
    assert.equal((await refused.json()).type, "urn:ifmatch:problem:unavailable");
    await set(fetch, "refusals", 0);
    // The rejection was definite: the next write does not wait for the end of a permit, which lasts a minute.
    const before = Date.now();
    assert.equal((await put(fetch, "/docs/a", "y")).status, 200);
    t.diagnostic(`the next write took ${Date.now() - before} ms`);
    await set(fetch, "refusals", 1);
    assert.equal((await fetch("/docs/a", { method: "DELETE" })).status, 204);
  });
}

// A platform with a limit on requests to R2 and objects per invocation. The tests send one request at a time.
const BUDGET = {
  wrap: `(env) => {
    const between = ${BETWEEN};
    const take = (call) => {
      globalThis.budget = (globalThis.budget ?? Infinity) - 1;
      if (globalThis.budget < 0) throw new Error("Too many subrequests by single Worker invocation.");
      return call();
    };
    const onObject = (name, args, call) => (name === "fetch" ? take(() => call(...args)) : call(...args));
    return {
      ...env,
      BUCKET: between(env.BUCKET, (name, args, call) => take(() => call(...args))),
      RECORDS: between(env.RECORDS, (name, args, call) => between(call(...args), onObject)),
    };
  }`,
  intercept: SET,
};
const ALLOWED = 80;

test("a writer that waits leaves the requests that are kept for releasing permits", async (t) => {
  const bindings = { IFMATCH_MAX_REQUESTS: "50" };
  const wrap = `(env) => (${HOLDING})((${BUDGET.wrap})(env))`;
  const { fetch } = await start(t, { ...interposed(t, { ...BUDGET, wrap }), bindings });
  await put(fetch, "/docs/a", "before");
  const release = await held(fetch, "/docs/a", { method: "PUT", body: "first" });
  await set(fetch, "budget", 50);
  assert.equal((await put(fetch, "/docs/a", "second")).status, 503);
  assert.equal(await set(fetch, "budget", 100_000), 20, "the reserve is left");
  assert.equal((await release()).status, 200);
});

test("a listing with more names than the request limit comes in pages", async (t) => {
  const bindings = { IFMATCH_MAX_REQUESTS: String(ALLOWED) };
  const { fetch } = await start(t, { ...interposed(t, BUDGET), bindings });
  const names = Array.from({ length: ALLOWED }, (_, at) => String(at).padStart(3, "0"));
  await forEach(names, (name) => put(fetch, `/docs/${name}`));
  const listed = [];
  let after = "";
  const late = limit("the last page of /docs");
  do {
    late.throwIfAborted();
    await set(fetch, "budget", ALLOWED);
    const page = await fetch(`/docs?limit=1000&after=${after}`);
    assert.equal(page.status, 200);
    const { blobs, next } = await page.json();
    assert.ok(blobs.length > 0, "each page makes progress");
    listed.push(...blobs.map((blob) => blob.name));
    after = next;
  } while (after);
  assert.deepEqual(listed, names);
});

test("a listing takes one request per name", async (t) => {
  const { fetch } = await start(t, interposed(t, COUNTING));
  await fetch(...signed("PUT", "/docs?restype=container"));
  const names = Array.from({ length: 40 }, (_, at) => `b${at}`);
  await forEach(names, (name) => put(fetch, `/docs/${name}`, "x", { "x-meta-name": name }));
  for (const request of [["/docs"], signed("GET", "/docs?restype=container&comp=list&include=metadata")]) {
    await fetch("/-/count");
    const listing = await text(fetch(...request));
    const { a, b, objects } = await (await fetch("/-/count")).json();
    assert.ok(a + b + objects <= names.length + 10, `${a + b} requests to R2 and ${objects} to objects`);
    assert.ok(names.every((name) => listing.includes(name)));
  }
  const { blobs } = await (await fetch("/docs")).json();
  for (const blob of blobs.slice(0, 3)) {
    const { headers } = await fetch(`/docs/${blob.name}`, { method: "HEAD" });
    assert.ok(JSON.stringify(blob).includes(JSON.stringify(headers.get("etag")).slice(1, -1)), "with the tag of a read");
  }
});

test("when other bodies fill the memory, writes get 503 and reads are served", async (t) => {
  const { fetch, url } = await start(t);
  await put(fetch, "/docs/there");
  const head = { method: "PUT", headers: { "content-length": String(8 << 20) }, agent: false };
  const slow = Array.from({ length: 4 }, (_, at) => http.request(new URL(`/docs/slow-${at}`, url), head));
  for (const request of slow) {
    request.on("error", () => {});
    request.write("the rest does not come");
  }
  let refused;
  let late = limit("a PUT is refused while the memory is full");
  do {
    late.throwIfAborted();
    refused = await put(fetch, "/docs/other");
  } while (refused.ok);
  assert.deepEqual([refused.status, refused.headers.get("retry-after")], [503, "1"]);
  assert.equal(await text(fetch("/docs/there")), "x");
  slow.forEach((request) => request.destroy());
  let taken;
  late = limit("a PUT is taken after the other bodies ended");
  do {
    late.throwIfAborted();
    taken = await put(fetch, "/docs/other");
  } while (taken.status === 503);
  assert.ok(taken.ok);
});

test("bodies without a length count as they arrive", async (t) => {
  const { fetch, url } = await start(t);
  const begin = (at, bytes) => {
    const request = http.request(new URL(`/docs/chunked-${at}`, url), { method: "PUT", agent: false, signal: limit(`the status of PUT ${at}`) });
    const status = new Promise((resolve) => {
      request.on("response", (response) => resolve(response.resume().statusCode)).on("error", resolve);
    });
    request.write(Buffer.alloc(bytes));
    return { request, status };
  };
  const small = Array.from({ length: 8 }, (_, at) => begin(at, 1));
  assert.equal((await put(fetch, "/docs/other")).status, 201);
  small.forEach(({ request }) => request.end());
  assert.deepEqual(await Promise.all(small.map(({ status }) => status)), Array(8).fill(201));
  const large = Array.from({ length: 5 }, (_, at) => begin(`large-${at}`, 7 << 20));
  assert.equal(await Promise.race(large.map(({ status }) => status)), 503);
  large.forEach(({ request }) => request.destroy());
});

test("a long body whose MD5 the Worker computes counts as it arrives", async (t) => {
  const { fetch, url } = await start(t);
  await fetch(...signed("PUT", "/docs?restype=container"));
  const md5 = Buffer.alloc(16).toString("base64");
  const fields = { "content-length": String(12 << 20), "content-md5": md5, "x-ms-blob-type": "BlockBlob" };
  const large = Array.from({ length: 5 }, (_, at) => {
    const [target, init] = signed("PUT", `/docs/md5-${at}`, fields);
    const request = http.request(new URL(target, url), { ...init, agent: false, signal: limit(`the status of PUT ${at}`) });
    const status = new Promise((resolve) => {
      request.on("response", (response) => resolve(response.resume().statusCode)).on("error", resolve);
    });
    request.write(Buffer.alloc(7 << 20));
    return { request, status };
  });
  assert.equal(await Promise.race(large.map(({ status }) => status)), 503);
  large.forEach(({ request }) => request.destroy());
});

test("the hash of a body is right, in WebAssembly and by the runtime", async (t) => {
  const { fetch } = await start(t);
  for (const length of [1000, 300_000, 5_000_000]) {
    const body = Buffer.alloc(length, "0123456789");
    const digest = Buffer.from(await crypto.subtle.digest("SHA-256", body)).toString("base64");
    const stream = () => new Blob([body]).stream();
    for (const [sent, more] of [[body, {}], [stream(), { duplex: "half" }]]) {
      const headers = { "repr-digest": `sha-256=:${digest}:` };
      assert.equal((await fetch("/docs/hashed", { method: "PUT", body: sent, headers, ...more })).ok, true, String(length));
      const other = { method: "PUT", body: sent === body ? body.subarray(1) : new Blob([body, "x"]).stream(), headers, ...more };
      assert.equal((await fetch("/docs/hashed", other)).status, 400, String(length));
    }
  }
});

test("a Worker without access control serves this machine only", async (t) => {
  const { fetch, url } = await start(t);
  const as = (host) =>
    new Promise((resolve, reject) => {
      const request = http.request(new URL("/docs/a", url), { headers: { host }, agent: false, signal: limit(`GET as ${host}`) }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      request.on("error", reject).end();
    });
  for (const [host, status] of [["ifmatch.example.workers.dev", 503], ["10.0.0.1", 503], [url.host, 404], ["localhost", 404]]) {
    assert.equal(await as(host), status, host);
  }
  assert.equal((await fetch("/docs/a")).status, 404);
});

test("a container with more names than the request limit is deleted", async (t) => {
  const bindings = { IFMATCH_MAX_REQUESTS: String(ALLOWED) };
  const { fetch } = await start(t, { ...interposed(t, BUDGET), bindings });
  const create = () => fetch(...signed("PUT", "/docs?restype=container"));
  assert.equal((await create()).status, 201);
  const names = Array.from({ length: 2 * ALLOWED }, (_, at) => `b${at}`);
  await forEach(names, (name) => put(fetch, `/docs/${name}`));
  await set(fetch, "budget", ALLOWED);
  assert.equal((await fetch(...signed("DELETE", "/docs?restype=container"))).status, 202);
  assert.ok((await set(fetch, "budget", 100_000)) > ALLOWED / 2, "R2 deletes a thousand objects per request");
  for (const name of [names[0], names.at(-1)]) {
    assert.equal((await fetch(`/docs/${name}`)).status, 404);
  }
  assert.equal((await create()).status, 201);
  assert.equal((await put(fetch, "/docs/b1")).status, 201);
});
