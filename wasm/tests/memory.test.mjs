// Large bodies are streamed: the Worker's memory does not depend on their size.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { signed } from "./azure.mjs";
import { interposed, limit, start } from "./support.mjs";

const MEGABYTES = 200;
// The runtime itself uses about 150 MB; a buffered body would add twice 200 MB.
const MOST = 400;
const CHUNK = Buffer.alloc(1 << 20, "0123456789abcdef");
// Reports the memory of WebAssembly: 2 MB at first, which never shrinks.
const OWN = {
  first: `WebAssembly.Instance = new Proxy(WebAssembly.Instance, {
    construct(Instance, args) {
      const instance = Reflect.construct(Instance, args);
      globalThis.memory = instance.exports.memory;
      return instance;
    },
  });`,
  intercept: `(request) => request.url.endsWith("/-/memory") ? Response.json(globalThis.memory.buffer.byteLength) : undefined`,
};

test("200 MB are written and read with little memory", async (t) => {
  const { fetch, url } = await start(t, interposed(t, OWN));
  const hash = createHash("sha256");
  for (let at = 0; at < MEGABYTES; at += 1) {
    hash.update(CHUNK);
  }
  const expected = hash.digest("base64");
  // A body with a length bypasses WebAssembly; of one without, a part of 8 MiB is buffered, and copied for sending.
  const ways = [
    ["/docs/told", { "content-length": String(MEGABYTES << 20) }, 4],
    ["/docs/untold", { "transfer-encoding": "chunked" }, 32],
  ];
  for (const [target, framing, own] of ways) {
    const put = await upload(url, target, { ...framing, "repr-digest": `sha-256=:${expected}:` });
    assert.equal(put, 201);
    const memory = await (await fetch("/-/memory")).json();
    assert.ok(memory <= own << 20, `WebAssembly has ${memory} bytes after ${JSON.stringify(framing)}`);
  }
  const peak = peakOfRuntime();
  t.diagnostic(`the runtime's peak was ${peak} MB`);
  assert.ok(peak < MOST, `${peak} MB`);
  // From here on, only the Worker's own memory counts: the local R2 in the same process sometimes buffers objects with parts.
  const before = await (await fetch("/-/memory")).json();
  for (const [target] of ways) {
    const back = createHash("sha256");
    const read = await fetch(target);
    assert.equal(read.headers.get("content-length"), String(MEGABYTES << 20));
    for await (const part of read.body) {
      back.update(part);
    }
    assert.equal(back.digest("base64"), expected);
  }
  assert.equal(await (await fetch("/-/memory")).json(), before, "the runtime's own stream is not read in WebAssembly");
});

test("changes of header fields at once do not hold the bytes of the blobs", async (t) => {
  const { fetch } = await start(t, interposed(t, OWN));
  const names = Array.from({ length: 16 }, (_, number) => `/docs/${number}`);
  const body = Buffer.alloc(8 << 20, "0123456789abcdef");
  for (const name of names) {
    assert.equal((await fetch(name, { method: "PUT", body })).status, 201);
  }
  const memory = async () => (await fetch("/-/memory")).json();
  const before = await memory();
  const changed = names.map((name) => fetch(...signed("PUT", `${name}?comp=metadata`, { "x-ms-meta-a": "b" })));
  assert.deepEqual((await Promise.all(changed)).map(({ status }) => status), names.map(() => 200));
  // Some for the requests themselves: one more body would take 8 MiB.
  assert.ok((await memory()) < before + (8 << 20), `${await memory()} bytes, ${before} before`);
  const read = await fetch(names[3]);
  assert.ok(Buffer.from(await read.arrayBuffer()).equals(body));
});

// Returns the peak memory of the runtime's processes in MB.
function peakOfRuntime() {
  const children = execFileSync("pgrep", ["-P", String(process.pid), "workerd"]).toString().trim().split("\n");
  const peaks = children.map((pid) => /VmHWM:\s+(\d+) kB/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
  return Math.round(Math.max(...peaks.map(Number)) / 1024);
}

function upload(url, path, headers) {
  const signal = limit(`PUT ${path}`);
  return new Promise((resolve, reject) => {
    const request = http.request({ host: url.hostname, port: url.port, agent: false, method: "PUT", path, headers, signal }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    request.on("error", (error) => reject(signal.reason ?? error));
    let sent = 0;
    const more = () => {
      while (sent < MEGABYTES) {
        sent += 1;
        if (!request.write(CHUNK)) {
          request.once("drain", more);
          return;
        }
      }
      request.end();
    };
    more();
  });
}
