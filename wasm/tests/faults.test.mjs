// Failures, delays and lost answers of R2 and the Durable Objects: responses to the client, and the state afterwards.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BETWEEN, interposed, limit, start } from "./support.mjs";

// Intercepts calls to the Worker's bindings. `fault` is the source of a function (where, name, args, call), which can read
// `globalThis.fault`. A request to /-/fault?VALUE sets it.
const faulty = (fault) => ({
  wrap: `(env) => {
    const between = ${BETWEEN};
    const fault = ${fault};
    const onObject = (name, args, call) => fault("object", name, args, call);
    return {
      ...env,
      BUCKET: between(env.BUCKET, (name, args, call) => fault("bucket", name, args, call)),
      RECORDS: between(env.RECORDS, (name, args, call) => between(call(...args), onObject)),
    };
  }`,
  intercept: `(request) => {
    const { pathname, search } = new URL(request.url);
    if (pathname !== "/-/fault") return;
    globalThis.fault = search.slice(1);
    return new Response(String(globalThis.hangs));
  }`,
});

const put = (fetch, target, body, headers) => fetch(target, { method: "PUT", body, headers });
const text = async (response) => (await response).text();

test("a write that R2 rejects gets 503 and changes nothing", async (t) => {
  const { fetch } = await start(
    t,
    interposed(t, faulty(`async (where, name, args, call) => {
      if (globalThis.fault === "on" && name === "put") throw new Error("put: Unspecified error (10001)");
      return call(...args);
    }`)),
  );
  const tag = (await put(fetch, "/docs/a", "before")).headers.get("etag");
  await fetch("/-/fault?on");
  const failed = await put(fetch, "/docs/a", "after", { "if-match": tag });
  assert.equal(failed.status, 503);
  assert.ok(failed.headers.has("retry-after"));
  assert.equal(await text(fetch("/docs/a")), "before");
  await fetch("/-/fault?off");
  assert.equal((await put(fetch, "/docs/a", "after", { "if-match": tag })).status, 200);
});

test("a write with a lost answer is found to have succeeded", async (t) => {
  const { fetch } = await start(
    t,
    interposed(t, faulty(`async (where, name, args, call) => {
      const done = await call(...args);
      if (globalThis.fault === "on" && name === "put") throw new Error("Network connection lost.");
      return done;
    }`)),
  );
  const tag = (await put(fetch, "/docs/a", "before")).headers.get("etag");
  await fetch("/-/fault?on");
  const written = await put(fetch, "/docs/a", "after", { "if-match": tag });
  assert.equal(written.status, 200);
  await fetch("/-/fault?off");
  const read = await fetch("/docs/a");
  assert.deepEqual([await read.text(), read.headers.get("etag")], ["after", written.headers.get("etag")]);
});

test("a request gets 503 if R2 does not answer, and others are served meanwhile", async (t) => {
  const { fetch } = await start(
    t,
    interposed(t, faulty(`(where, name, args, call) => {
      if (globalThis.fault === "on" && name === "head" && args[0] === "docs/slow") return new Promise(() => {});
      return call(...args);
    }`)),
  );
  assert.equal((await put(fetch, "/docs/slow", "before")).status, 201);
  await fetch("/-/fault?on");
  const slow = put(fetch, "/docs/slow", "after");
  assert.equal((await put(fetch, "/docs/other", "x")).status, 201);
  const answer = await slow;
  assert.equal(answer.status, 503);
  await fetch("/-/fault?off");
  assert.equal(await text(fetch("/docs/slow")), "before");
  assert.equal((await put(fetch, "/docs/slow", "after")).status, 200);
});

test("nothing is written without the Durable Objects", async (t) => {
  const { fetch } = await start(
    t,
    interposed(t, faulty(`async (where, name, args, call) => {
      if (globalThis.fault === "on" && where === "object") throw new Error("Durable Object is overloaded.");
      return call(...args);
    }`)),
  );
  await put(fetch, "/docs/a", "before");
  await fetch("/-/fault?on");
  const failed = await put(fetch, "/docs/a", "after");
  assert.deepEqual([failed.status, failed.headers.has("retry-after")], [503, true]);
  await fetch("/-/fault?off");
  assert.equal(await text(fetch("/docs/a")), "before");
});

test("a long body gets 503 if R2 does not answer once it has arrived", async (t) => {
  const hang = `(where, name, args, call) => {
    if (globalThis.fault !== "on" || name !== "resumeMultipartUpload") return call(...args);
    const uploadPart = async (_, body) => {
      await body.pipeTo(new WritableStream());
      return new Promise(() => {});
    };
    return { uploadPart, async abort() {} };
  }`;
  const { fetch } = await start(t, interposed(t, faulty(hang)));
  assert.equal((await put(fetch, "/docs/long", "before")).status, 201);
  await fetch("/-/fault?on");
  const answer = await put(fetch, "/docs/long", Buffer.alloc((8 << 20) + 1));
  assert.deepEqual([answer.status, answer.headers.has("retry-after")], [503, true]);
  assert.equal(await text(fetch("/docs/long")), "before");
});

test("a request that the platform ends keeps no writer out for longer than its permit", async (t) => {
  // The platform neither finishes nor drops it: its write and its timers do not end. Then, a minute has passed.
  const ending = {
    ...faulty(`(where, name, args, call) => {
      if (globalThis.fault !== "ended" || name !== "put") return call(...args);
      globalThis.hangs = true;
      return new Promise(() => {});
    }`),
    first: `const [date, elapsed, timer] = [Date.now, performance.now.bind(performance), setTimeout];
      const passed = () => (globalThis.fault === "later" ? 61_000 : 0);
      Date.now = () => date() + passed();
      performance.now = () => elapsed() + passed();
      globalThis.setTimeout = (...args) => (globalThis.fault === "ended" ? 0 : timer(...args));`,
  };
  const { fetch } = await start(t, interposed(t, ending));
  await put(fetch, "/docs/a", "before");
  await fetch("/-/fault?ended");
  put(fetch, "/docs/a", "ended").catch(() => {});
  const late = limit("the write that is to be ended reaches the bucket");
  while ((await text(fetch("/-/fault?ended"))) !== "true") late.throwIfAborted();
  await fetch("/-/fault?later");
  assert.equal((await put(fetch, "/docs/a", "after")).status, 200);
  assert.equal(await text(fetch("/docs/a")), "after");
});

// Loses the answer of every second swap after carrying it out, like an object that is reset.
const LOSING = `async (where, name, args, call) => {
  if (where !== "object" || name !== "fetch") return call(...args);
  const said = new Uint8Array(await args[0].clone().arrayBuffer());
  const answer = await call(...args);
  globalThis.swaps = (globalThis.swaps ?? 0) + (said[1] === 1);
  if (globalThis.fault === "on" && said[1] === 1 && globalThis.swaps % 2 === 0) {
    await answer.arrayBuffer();
    throw new Error("Durable Object reset because its code was updated.");
  }
  return answer;
}`;

test("a swap with a lost answer is neither repeated nor forgotten: increments are exact", async (t) => {
  const { fetch } = await start(t, interposed(t, faulty(LOSING)));
  await put(fetch, "/docs/count", "0");
  await fetch("/-/fault?on");
  let acknowledged = 0;
  let unknown = 0;
  const increment = async () => {
    const late = limit("an increment of /docs/count");
    for (;;) {
      late.throwIfAborted();
      const read = await fetch("/docs/count");
      const [count, tag] = [Number(await read.text()), read.headers.get("etag")];
      const { status } = await put(fetch, "/docs/count", String(count + 1), { "if-match": tag });
      if (status === 200) {
        acknowledged += 1;
        return;
      }
      if (status === 503) {
        unknown += 1;
        return;
      }
      assert.ok([409, 412].includes(status), String(status));
    }
  };
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (let done = 0; done < 5; done += 1) {
      await increment();
    }
  }));
  await fetch("/-/fault?off");
  const count = Number(await text(fetch("/docs/count")));
  assert.ok(count >= acknowledged && count <= acknowledged + unknown, `${count} of ${acknowledged} + ${unknown}`);
  assert.ok(acknowledged > 0);
});

// One request fails while others are served, and succeeds once the fault is gone.
async function failsAlone(t, settings, target, init, status) {
  const { fetch } = await start(t, interposed(t, settings));
  await put(fetch, "/docs/bad", "bad");
  await put(fetch, "/docs/good", "good");
  await fetch("/-/fault?on");
  const [bad, ...good] = await Promise.all([
    fetch(target, init),
    ...Array.from({ length: 10 }, () => fetch("/docs/good")),
  ]);
  assert.equal(bad.status, status);
  assert.deepEqual(await Promise.all(good.map((answer) => answer.text())), Array(10).fill("good"));
  await fetch("/-/fault?off");
  assert.ok((await fetch(target, init)).ok);
  assert.equal(await text(fetch("/docs/bad")), "bad");
}

test("a panic fails only its own request, with 500", async (t) => {
  // The `worker` crate panics if it cannot create this stream, which several ranges need.
  const first = `globalThis.FixedLengthStream = class extends FixedLengthStream {
    constructor(length) {
      if (globalThis.fault === "on") throw new Error("no stream");
      super(length);
    }
  };`;
  const settings = { ...faulty("(where, name, args, call) => call(...args)"), first };
  await failsAlone(t, settings, "/docs/bad", { headers: { range: "bytes=0-0,2-2" } }, 500);
});

for (const [what, target, method] of [
  ["an object", "/docs/bad", "HEAD"],
  ["a listing", "/docs", "GET"],
]) {
  test(`${what} of R2 without its properties fails only its own request`, async (t) => {
    const odd = `async (where, name, args, call) => {
      const found = await call(...args);
      if (globalThis.fault !== "on") return found;
      const odd = { get key() { throw new Error("no key"); }, get size() { throw new Error("no size"); } };
      if (name === "head" && args[0] === "docs/bad") return odd;
      return name === "list" ? { objects: [odd], delimitedPrefixes: [], truncated: false } : found;
    }`;
    await failsAlone(t, faulty(odd), target, { method }, 500);
  });
}
