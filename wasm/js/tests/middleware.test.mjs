// `ifmatch/fetch`, `ifmatch/hono` and `ifmatch/node`: all pass the same cases.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";

import express from "express";
import { Hono } from "hono";
import { compress } from "hono/compress";
import { cors } from "hono/cors";
import { contentTag } from "ifmatch";
import * as fetched from "ifmatch/fetch";
import * as hono from "ifmatch/hono";
import * as node from "ifmatch/node";

const tag = (text) => (text === undefined ? null : contentTag(new TextEncoder().encode(text)));

/** A note in a store with a compare-and-swap that takes some time, as any store in another process does. */
function store(text) {
  const later = () => new Promise((done) => setImmediate(done));
  return {
    text,
    async read() {
      await later();
      return this.text;
    },
    /** `replaces` is what the middleware passes on. */
    async write(text, replaces) {
      await later();
      if (replaces !== undefined && tag(this.text) !== (replaces?.etag ?? null)) return false;
      this.text = text;
      return true;
    },
  };
}

const headers = { "cache-control": "no-cache", "content-language": "en", "set-cookie": "a=1" };
const written = () => new Response(null, { status: 204 });
const options = (note, others) => ({ current: async () => tag(await note.read()), ...others });

const ADAPTERS = {
  fetch(note, others, reading) {
    const handler = async (request) => {
      if (request.method === "GET" || request.method === "HEAD") return reading ? reading() : shown(note);
      const text = request.method === "DELETE" ? undefined : await request.text();
      return (await note.write(text, fetched.replaces(request))) ? written() : fetched.preconditionFailed();
    };
    const app = fetched.conditional(handler, options(note, others));
    return (method, fields, body) => app(new Request("http://a/note", { method, headers: fields, body }));
  },
  hono(note, others, reading) {
    const app = new Hono();
    app.use(hono.conditional(options(note, others)));
    app.get("/note", () => (reading ? reading() : shown(note)));
    app.on(["PUT", "PATCH", "POST", "DELETE"], "/note", async (c) => {
      const text = c.req.method === "DELETE" ? undefined : await c.req.text();
      return (await note.write(text, hono.replaces(c))) ? written() : hono.preconditionFailed();
    });
    return (method, fields, body) => app.request("/note", { method, headers: fields, body });
  },
};

/** Sends a request to an Express app, and fails if there is no answer. */
async function asked(app, init) {
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new Error(`${init.method} /note: no answer within 60 s`)), 60_000);
  try {
    const url = `http://127.0.0.1:${server.address().port}/note`;
    return await fetch(url, { ...init, headers: { connection: "close", ...init.headers }, signal: late.signal });
  } finally {
    clearTimeout(timer);
    server.close();
  }
}

/** It leaves reads alone. */
const WRITERS = {
  ...ADAPTERS,
  node(note, others) {
    const app = express();
    app.use(express.text({ type: () => true }));
    app.use(node.conditional(options(note, others)));
    app.all("/note", async (req, res) => {
      const text = req.method === "DELETE" ? undefined : req.body;
      if (await note.write(text, node.replaces(req))) res.status(204).end();
      else await node.preconditionFailed(res);
    });
    return (method, fields, body) => asked(app, { method, headers: fields, body });
  },
};

async function shown(note) {
  const text = await note.read();
  return text === undefined ? new Response("none", { status: 404 }) : new Response(text, { headers });
}

const made = (adapt) => (text, others, reading) => {
  const note = store(text);
  return { note, ask: adapt(note, others, reading) };
};

for (const [name, adapt] of Object.entries(ADAPTERS)) {
  const app = made(adapt);

  test(`${name}: a read has a strong tag, and becomes 304 with the fields of a 304`, async () => {
    const { ask } = app("one");
    const found = await ask("GET");
    assert.deepEqual([found.status, await found.text(), found.headers.get("etag")], [200, "one", tag("one")]);
    for (const held of [tag("one"), `W/${tag("one")}`, `"x", ${tag("one")}`, "*"]) {
      const unchanged = await ask("GET", { "if-none-match": held });
      assert.deepEqual([unchanged.status, await unchanged.text()], [304, ""], held);
      const { etag, ...fields } = Object.fromEntries(unchanged.headers);
      assert.deepEqual([etag, fields], [tag("one"), { "cache-control": "no-cache", "set-cookie": "a=1" }], held);
    }
    assert.equal((await ask("GET", { "if-none-match": '"x"' })).status, 200);
    assert.equal((await ask("GET", { "if-match": '"x"' })).status, 412);
  });

  test(`${name}: only a success is unchanged`, async () => {
    const { ask } = app();
    for (const held of ["*", '"x"', tag("none")]) assert.equal((await ask("GET", { "if-none-match": held })).status, 404);
  });

  test(`${name}: the handler's tag is kept, and a weak one satisfies no If-Match`, async () => {
    const { ask } = app("one", {}, () => new Response("one", { headers: { etag: 'W/"v1"' } }));
    assert.equal((await ask("GET")).headers.get("etag"), 'W/"v1"');
    assert.equal((await ask("GET", { "if-none-match": '"v1"' })).status, 304);
    assert.equal((await ask("GET", { "if-match": 'W/"v1"' })).status, 412);
  });

  test(`${name}: a coded, partial, long or endless response gets no tag`, async () => {
    const endless = () => new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(1 << 10)) });
    for (const [body, init] of [
      ["coded", { headers: { "content-encoding": "gzip" } }],
      ["part", { status: 206, headers: { "content-range": "bytes 0-3/9" } }],
      ["x".repeat(65), {}],
      [endless(), { headers: { "content-type": "text/event-stream" } }],
      [endless(), {}],
    ]) {
      const { ask } = app("one", { maxLength: 64 }, () => new Response(body, init));
      const found = await ask("GET", { "if-none-match": '"x"' });
      assert.deepEqual([found.status, found.headers.get("etag")], [init.status ?? 200, null]);
      if (typeof body === "string") assert.equal(await found.text(), body);
      else await found.body.cancel();
    }
  });

  test(`${name}: the first part of a streamed response does not wait for the rest`, async () => {
    let release;
    const rest = new Promise((resolve) => (release = resolve));
    const body = new ReadableStream({
      async start(controller) {
        controller.enqueue(new TextEncoder().encode("first"));
        await rest;
        controller.enqueue(new TextEncoder().encode(", last"));
        controller.close();
      },
    });
    const { ask } = app("one", {}, () => new Response(body));
    const found = await ask("GET");
    const reader = found.body.getReader();
    assert.equal(new TextDecoder().decode((await reader.read()).value), "first");
    assert.equal(found.headers.get("etag"), null);
    release();
    assert.equal(new TextDecoder().decode((await reader.read()).value), ", last");
    assert.equal((await reader.read()).done, true);
  });

  test(`${name}: a response of exactly the limit has a tag, in any number of pieces`, async () => {
    const pieces = ["a".repeat(40), "b".repeat(24)];
    const body = () => new ReadableStream({
      pull(controller) {
        const piece = pieces.shift();
        if (piece) controller.enqueue(new TextEncoder().encode(piece));
        else controller.close();
      },
    });
    const { ask } = app("one", { maxLength: 64 }, () => new Response(body()));
    const found = await ask("GET");
    const text = "a".repeat(40) + "b".repeat(24);
    assert.deepEqual([found.headers.get("etag"), await found.text()], [tag(text), text]);
  });
}

for (const [name, adapt] of Object.entries(WRITERS)) {
  const app = made(adapt);

  test(`${name}: a write on a condition`, async () => {
    for (const [text, method, fields, status, after] of [
      ["one", "PUT", { "if-match": tag("one") }, 204, "two"],
      ["one", "PUT", { "if-match": `W/${tag("one")}` }, 412, "one"],
      ["one", "PUT", { "if-match": "*" }, 204, "two"],
      [undefined, "PUT", { "if-match": "*" }, 412, undefined],
      ["one", "PUT", { "if-none-match": "*" }, 412, "one"],
      [undefined, "PUT", { "if-none-match": "*" }, 204, "two"],
      ["one", "PATCH", { "if-match": '"x"' }, 412, "one"],
      ["one", "DELETE", { "if-match": '"x"' }, 412, "one"],
      ["one", "DELETE", { "if-match": tag("one") }, 204, undefined],
      ["one", "POST", { "if-match": '"x"' }, 412, "one"],
      // The version has no date, so the condition cannot hold.
      ["one", "PUT", { "if-unmodified-since": "Thu, 01 Jan 1970 00:00:01 GMT" }, 412, "one"],
      ["one", "PUT", {}, 204, "two"],
    ]) {
      const { note, ask } = app(text);
      const { status: found } = await ask(method, fields, method === "DELETE" ? undefined : "two");
      assert.deepEqual([found, note.text], [status, after], `${text} ${method} ${JSON.stringify(fields)}`);
    }
  });

  test(`${name}: a write by date`, async () => {
    const date = "Thu, 01 Jan 1970 00:01:40 GMT";
    const current = () => ({ lastModified: date });
    for (const [held, status] of [[date, 204], ["Thu, 01 Jan 1970 00:01:39 GMT", 412]]) {
      const ask = adapt({ ...store("one"), write: async () => true }, { current });
      assert.equal((await ask("PUT", { "if-unmodified-since": held }, "two")).status, status, held);
    }
  });

  test(`${name}: of eight writers with one tag, one writes`, async () => {
    const { ask } = app("one");
    const writes = Array.from({ length: 8 }, (_, at) => ask("PUT", { "if-match": tag("one") }, `writer ${at}`));
    const statuses = (await Promise.all(writes)).map((response) => response.status).sort();
    assert.deepEqual(statuses, [204, ...Array(7).fill(412)]);
  });

  test(`${name}: required conditions`, async () => {
    const { ask, note } = app("one", { required: true });
    for (const [method, status] of [["PUT", 428], ["PATCH", 428], ["DELETE", 428], ["POST", 204]]) {
      note.text = "one";
      assert.equal((await ask(method, {}, method === "DELETE" ? undefined : "two")).status, status, method);
    }
    const refused = await ask("PUT", {}, "three");
    assert.equal(refused.headers.get("content-type"), "application/problem+json");
    assert.match((await refused.json()).detail, /send If-Match/);
  });

  test(`${name}: without the current version, a condition of a write is not ignored`, async () => {
    const { note, ask } = app("one", { current: undefined });
    assert.equal((await ask("PUT", { "if-match": tag("one") }, "two")).status, 501);
    assert.equal(note.text, "one");
    assert.equal((await ask("PUT", {}, "two")).status, 204);
  });

  test(`${name}: a wrong option is a TypeError`, () => {
    for (const [wrong, what] of [
      [{ require: true }, /"require" isn't an option/],
      [{ current: '"v1"' }, /a function/],
      ...(name === "node" ? [] : [[{ maxLength: NaN }, /a number of bytes/], [{ maxLength: "1MB" }, /a number of bytes/]]),
      [{ current: undefined, required: true }, /needs current/],
    ]) {
      assert.throws(() => app("one", wrong), (error) => error instanceof TypeError && what.test(error.message));
    }
  });
}

test("hono: behind compress, a tag is weak, and a read with it is unchanged", async () => {
  const text = "x".repeat(2_000);
  const app = new Hono();
  app.use(compress());
  app.use(hono.conditional({ current: () => tag(text) }));
  app.get("/note", (c) => c.text(text));
  app.put("/note", () => written());
  const ask = (method, fields) => app.request("/note", { method, headers: { "accept-encoding": "gzip", ...fields } });
  const etag = (await ask("GET")).headers.get("etag");
  assert.equal(etag, `W/${tag(text)}`);
  assert.equal((await ask("GET", { "if-none-match": etag })).status, 304);
  assert.equal((await ask("PUT", { "if-match": etag })).status, 412);
});

test("hono: a 304 and a 412 of a read keep the fields of middleware around it", async () => {
  const app = new Hono();
  app.use(cors({ origin: "https://app.example", credentials: true }));
  app.use(async (c, next) => {
    for (const cookie of ["a=1", "b=2"]) c.header("set-cookie", cookie, { append: true });
    await next();
  });
  app.use(hono.conditional());
  app.get("/note", (c) => c.text("one"));
  const origin = "https://app.example";
  for (const [fields, status] of [[{}, 200], [{ "if-none-match": "*" }, 304], [{ "if-match": '"x"' }, 412]]) {
    const found = await app.request("/note", { headers: { origin, ...fields } });
    assert.deepEqual([found.status, found.headers.get("access-control-allow-origin")], [status, origin]);
    assert.deepEqual(found.headers.getSetCookie(), ["a=1", "b=2"]);
  }
});

test("hono: in a mounted app, the version that a write replaces is an error, not undefined", async () => {
  const inner = new Hono().put("/note", (c) => c.json(hono.replaces(c) ?? "unconditional"));
  inner.onError((error, c) => c.text(`${error.name}: ${error.message}`, 500));
  const write = { method: "PUT", headers: { "if-match": '"1"' } };
  const outside = new Hono().use(hono.conditional({ current: () => '"1"' }));
  outside.mount("/app", inner.fetch);
  const refused = await outside.request("/app/note", write);
  assert.equal(refused.status, 500);
  assert.match(await refused.text(), /^TypeError: .*conditional/);
  const inside = new Hono().mount("/app", new Hono().use(hono.conditional({ current: () => '"1"' })).route("/", inner).fetch);
  assert.deepEqual(await (await inside.request("/app/note", write)).json(), { etag: '"1"' });
});

test("node: an error of current and of the handler reaches the error handler", async () => {
  const app = express();
  app.use(node.conditional({ current: () => { throw new Error("the database is gone"); } }));
  app.all("/note", () => { throw new Error("the handler failed"); });
  app.use((error, req, res, next) => res.status(503).send(error.message));
  const ask = async (headers) => {
    const answer = await asked(app, { method: "PUT", headers });
    return [answer.status, await answer.text()];
  };
  assert.deepEqual(await ask({ "if-match": '"1"' }), [503, "the database is gone"]);
  assert.deepEqual(await ask({}), [503, "the handler failed"]);
});

test("node: next is called once, even if it throws", async () => {
  // In a process of its own, which the error ends: the test runner would take it for a failure.
  const script = `
    import { conditional } from "ifmatch/node";
    let calls = 0;
    process.once("uncaughtException", (error) => { console.log(calls, error.message); process.exit(3); });
    conditional({ current: () => '"1"' })({ method: "GET", headers: {} }, {}, () => { calls++; throw new Error("the chain failed"); });
    setTimeout(() => { console.log("no error after 60 s"); process.exit(1); }, 60_000);
  `;
  const options = { cwd: import.meta.dirname, encoding: "utf8", timeout: 120_000 };
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], options);
  assert.deepEqual([stdout, status], ["1 the chain failed\n", 3], stderr);
});

test("node: a request that did not pass the middleware has no version that it replaces", () => {
  assert.throws(() => node.replaces({}), { name: "TypeError", message: /behind conditional/ });
});

test("node: it computes no tags, so maxLength isn't an option", () => {
  assert.throws(() => node.conditional({ maxLength: 1 }), /"maxLength" isn't an option: use current, required/);
});

test("hono: a HEAD has the tag of the GET", async () => {
  const app = new Hono();
  app.use(hono.conditional());
  app.get("/note", (c) => c.text("one"));
  const found = await app.request("/note", { method: "HEAD" });
  assert.deepEqual([found.headers.get("etag"), await found.text()], [tag("one"), ""]);
  assert.equal((await app.request("/note", { method: "HEAD", headers: { "if-none-match": tag("one") } })).status, 304);
});

test("fetch: a HEAD without a body has no tag of its own", async () => {
  const app = fetched.conditional(() => new Response(null, { headers: { "content-length": "3" } }));
  assert.equal((await app(new Request("http://a/", { method: "HEAD" }))).headers.get("etag"), null);
});

test("fetch: parts of all kinds make the same body", async () => {
  const bytes = new TextEncoder().encode("hello!");
  const kinds = [bytes, bytes.buffer.slice(0), new DataView(bytes.buffer), new Uint16Array(bytes.buffer.slice(0))];
  for (const maxLength of [3, 100]) {
    for (const part of kinds) {
      const body = new ReadableStream({ start: (controller) => (controller.enqueue(part), controller.close()) });
      // Node takes nothing but Uint8Array as parts of a body, unlike Cloudflare, so this response only carries them.
      const response = Object.defineProperty(new Response("hello!"), "body", { value: body });
      const app = fetched.conditional(() => response, { maxLength });
      const answer = await app(new Request("http://a/"));
      assert.equal(await answer.text(), "hello!", `${part.constructor.name}, ${maxLength}`);
      assert.equal(answer.headers.get("etag"), maxLength > 6 ? tag("hello!") : null);
    }
  }
});

test("fetch: an invalid date is none", async () => {
  for (const date of ["Invalid Date", "Fri, 01 Jan 10000 00:00:00 GMT", ""]) {
    const handler = fetched.conditional(() => new Response("one", { headers: { "last-modified": date } }));
    const request = new Request("http://localhost/", { headers: { "if-modified-since": new Date(0).toUTCString() } });
    assert.equal((await handler(request)).status, 200, date);
  }
});

test("fetch: a malformed tag is none", async () => {
  const app = fetched.conditional(() => new Response("one", { headers: { etag: "abc" } }));
  for (const [fields, status] of [[{}, 200], [{ "if-none-match": '"abc"' }, 200], [{ "if-match": '"abc"' }, 200]]) {
    const answer = await app(new Request("http://a/", { headers: fields }));
    assert.equal(answer.status, status, JSON.stringify(fields));
  }
});

test("fetch: a copy of a request has no version that it replaces", async () => {
  const app = fetched.conditional((request) => (fetched.replaces(new Request(request)), written()), { current: () => '"1"' });
  const write = new Request("http://a/", { method: "PUT", headers: { "if-match": '"1"' } });
  await assert.rejects(app(write), { name: "TypeError", message: /not a copy/ });
});

test("fetch: OPTIONS has no conditions", async () => {
  const app = fetched.conditional(() => written());
  assert.equal((await app(new Request("http://a/", { method: "OPTIONS", headers: { "if-match": '"a"' } }))).status, 204);
});
