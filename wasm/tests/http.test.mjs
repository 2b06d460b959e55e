// HTTP through the runtime: lengths, empty bodies, header fields, streams.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import http from "node:http";
import net from "node:net";
import { after, before, test } from "node:test";
import { FOLDER, ask, limit } from "./support.mjs";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options, urls } from "../miniflare/options.mjs";

let miniflare;
let url;
before(async () => {
  miniflare = new Miniflare(options({ folder: FOLDER }));
  ({ blobs: url } = await urls(miniflare));
});
after(() => miniflare.dispose());

const fetch = (target, init) => ask(url, target, init);
const put = (target, body, headers) => fetch(target, { method: "PUT", body, headers });

test("a blob is written, read, and replaced on a condition", async () => {
  const created = await put("/docs/a.txt", "one", { "if-none-match": "*", "content-type": "text/plain" });
  assert.equal(created.status, 201);
  const tag = created.headers.get("etag");
  assert.match(tag, /^"[^"]+"$/);
  assert.equal((await put("/docs/a.txt", "two", { "if-none-match": "*" })).status, 412);
  const read = await fetch("/docs/a.txt");
  assert.deepEqual(
    [read.status, read.headers.get("etag"), read.headers.get("content-length"), read.headers.get("content-type"), await read.text()],
    [200, tag, "3", "text/plain", "one"],
  );
  const unchanged = await fetch("/docs/a.txt", { headers: { "if-none-match": tag } });
  assert.deepEqual([unchanged.status, await unchanged.text()], [304, ""]);
  const replaced = await put("/docs/a.txt", "two", { "if-match": tag });
  assert.equal(replaced.status, 200);
  assert.equal((await put("/docs/a.txt", "three", { "if-match": tag })).status, 412);
  const gone = await fetch("/docs/a.txt", { method: "DELETE", headers: { "if-match": replaced.headers.get("etag") } });
  assert.equal(gone.status, 204);
  assert.equal((await fetch("/docs/a.txt")).status, 404);
});

test("HEAD returns the length without a body", async () => {
  await put("/docs/head.txt", "12345");
  const head = await fetch("/docs/head.txt", { method: "HEAD" });
  assert.deepEqual([head.status, head.headers.get("content-length"), await head.text()], [200, "5", ""]);
});

test("an empty blob exists", async () => {
  assert.equal((await put("/docs/empty", "")).status, 201);
  const read = await fetch("/docs/empty");
  assert.deepEqual([read.status, read.headers.get("content-length"), await read.text()], [200, "0", ""]);
});

test("ranges are sent with their lengths", async () => {
  await put("/docs/range", "0123456789");
  const part = await fetch("/docs/range", { headers: { range: "bytes=2-4" } });
  assert.deepEqual([part.status, part.headers.get("content-length"), await part.text()], [206, "3", "234"]);
  const parts = await fetch("/docs/range", { headers: { range: "bytes=0-0,9-9" } });
  assert.equal(parts.status, 206);
  const text = await parts.text();
  assert.equal(parts.headers.get("content-length"), String(text.length));
  assert.equal((await fetch("/docs/range", { headers: { range: "bytes=10-" } })).status, 416);
});

test("metadata is stored; invalid bytes and the name __proto__ are rejected", async () => {
  const note = "a b\tc; d=\"e\"";
  assert.equal((await put("/docs/meta", "x", { "x-meta-note": note, "x-meta-constructor": "y" })).status, 201);
  const { headers } = await fetch("/docs/meta");
  assert.deepEqual([headers.get("x-meta-note"), headers.get("x-meta-constructor")], [note, "y"]);
  assert.equal((await put("/docs/meta", "x", { "x-meta-__proto__": "z" })).status, 400);
  const sent = await raw("PUT", "/docs/meta", { "x-meta-note": "caf\u00e9", "content-length": "1" }, "x");
  assert.deepEqual([sent.status, sent.headers["content-type"]], [400, "application/problem+json"]);
});

test("a listing has all blobs in order", async () => {
  for (const name of ["b", "a/2", "a/1"]) {
    await put(`/listed/${name}`, name);
  }
  const first = await (await fetch("/listed?limit=2")).json();
  assert.deepEqual(first.blobs.map((blob) => blob.name), ["a/1", "a/2"]);
  const rest = await (await fetch(`/listed?after=${encodeURIComponent(first.next)}`)).json();
  assert.deepEqual(rest.blobs.map((blob) => blob.name), ["b"]);
});

test("one of 20 concurrent creations of a blob succeeds", async () => {
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, at) => put("/docs/race", `${at}`, { "if-none-match": "*" })),
  );
  const statuses = answers.map((answer) => answer.status);
  assert.deepEqual([201, 412].map((status) => statuses.filter((its) => its === status).length), [1, 19]);
  const winner = statuses.indexOf(201);
  const read = await fetch("/docs/race");
  assert.deepEqual([await read.text(), read.headers.get("etag")], [`${winner}`, answers[winner].headers.get("etag")]);
});

test("a body without a length is stored completely", async () => {
  const chunks = ["one", "two", "three"];
  const answer = await raw("PUT", "/docs/chunked", { "transfer-encoding": "chunked" }, chunks);
  assert.equal(answer.status, 201);
  assert.equal(await (await fetch("/docs/chunked")).text(), chunks.join(""));
});

for (const framing of ["content-length: 100000", "transfer-encoding: chunked"]) {
  test(`a client that disconnects halfway changes nothing (${framing})`, async () => {
    await put("/docs/half", "before");
    const body = framing.startsWith("transfer") ? "400\r\n" + "x".repeat(1024) + "\r\n" : "x".repeat(1024);
    await leave(`PUT /docs/half HTTP/1.1\r\nhost: ${url.host}\r\n${framing}\r\n\r\n${body}`);
    for (let looked = 0; looked < 20; looked += 1) {
      assert.equal(await (await fetch("/docs/half")).text(), "before");
    }
    assert.equal((await put("/docs/half", "after")).status, 200);
  });
}

test("a large blob is intact in both directions", async () => {
  const chunk = Buffer.alloc(1 << 20, "0123456789abcdef");
  const megabytes = 24;
  const hash = createHash("sha256");
  for (let sent = 0; sent < megabytes; sent += 1) {
    hash.update(chunk);
  }
  const expected = hash.digest("base64");
  const answer = await raw(
    "PUT",
    "/docs/large",
    { "content-length": String(megabytes << 20), "repr-digest": `sha-256=:${expected}:` },
    Array(megabytes).fill(chunk),
  );
  assert.equal(answer.status, 201, answer.body);
  const read = await fetch("/docs/large");
  assert.equal(read.headers.get("content-length"), String(megabytes << 20));
  const back = createHash("sha256");
  for await (const part of read.body) {
    back.update(part);
  }
  assert.equal(back.digest("base64"), expected);
});

// Sends a request with Node's client, which does not change header fields.
function raw(method, path, headers, body = []) {
  const signal = limit(`${method} ${path}`);
  return new Promise((resolve, reject) => {
    const request = http.request({ host: url.hostname, port: url.port, agent: false, method, path, headers, signal }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () =>
        resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks).toString() }),
      );
      response.on("error", (error) => reject(signal.reason ?? error));
    });
    request.on("error", (error) => reject(signal.reason ?? error));
    for (const chunk of [body].flat()) {
      request.write(chunk);
    }
    request.end();
  });
}

// Sends a text, and closes the connection immediately.
function leave(text) {
  const late = limit(`the first bytes of ${text.split("\r\n", 1)[0]} are sent`);
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(url.port), url.hostname, () => {
      socket.write(text, () => {
        socket.destroy();
        resolve();
      });
    });
    socket.on("error", reject);
    late.addEventListener("abort", () => {
      socket.destroy();
      reject(late.reason);
    });
  });
}
