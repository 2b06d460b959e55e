// Large bodies pass the Worker by: what it keeps of them does not depend on their size.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { interposed, start } from "./support.mjs";

const MEGABYTES = 200;
// The runtime itself has about 150 MB; a body that was kept would be twice 200 MB.
const MOST = 400;
const CHUNK = Buffer.alloc(1 << 20, "0123456789abcdef");
// The memory of WebAssembly: 2 MB to begin with, which grow and never shrink.
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

test("200 MB go through both ways, and little memory is used", async (t) => {
  const { fetch, url } = await start(t, interposed(t, OWN));
  const hash = createHash("sha256");
  for (let at = 0; at < MEGABYTES; at += 1) {
    hash.update(CHUNK);
  }
  const expected = hash.digest("base64");
  // What has a length passes WebAssembly by; of what has none, a part of 8 MiB is kept, and copied to be sent.
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
  t.diagnostic(`the runtime used ${peak} MB at the most`);
  assert.ok(peak < MOST, `${peak} MB`);
  // Now only what the Worker has is looked at: in the same process is what takes R2's place, and where an object has parts
  // that now and then keeps all of it until it is read, behind any Worker.
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
  assert.equal(await (await fetch("/-/memory")).json(), before, "bytes of the runtime's own stream are not read here");
});

// The most memory that a child of this process ever had, in MB.
function peakOfRuntime() {
  const children = execFileSync("pgrep", ["-P", String(process.pid), "workerd"]).toString().trim().split("\n");
  const peaks = children.map((pid) => /VmHWM:\s+(\d+) kB/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
  return Math.round(Math.max(...peaks.map(Number)) / 1024);
}

function upload(url, path, headers) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: url.hostname, port: url.port, agent: false, method: "PUT", path, headers }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    request.on("error", reject);
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
