// Kills the runtime during 100 writes, and starts it again on the same state.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import path from "node:path";
import readline from "node:readline";
import { test } from "node:test";
import { acquire } from "./azure.mjs";
import { FOLDER, ask, folder, limit } from "./support.mjs";

const SERVE = path.join(import.meta.dirname, "../miniflare/serve.mjs");
const ROUNDS = 3;
const WRITERS = 100;
const LEASED = Array.from({ length: 8 }, (_, at) => `/crash/leased-${at}`);

// Starts a server in a separate process, so that its runtime can be killed.
async function serve(persist) {
  const node = spawn(process.execPath, [SERVE, "--modules", FOLDER, "--port", "0", "--persist", persist], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const signal = limit("the line of the server's address");
  const [line] = await once(readline.createInterface(node.stdout), "line", { signal });
  const url = new URL(line.replace("blobs on ", ""));
  let hasEnded = false;
  const end = async (signal) => {
    hasEnded = true;
    const runtimes = execFileSync("pgrep", ["-P", String(node.pid)]).toString().trim().split("\n");
    node.kill("SIGKILL");
    for (const runtime of runtimes) {
      process.kill(Number(runtime), signal);
    }
    await once(node, "exit", { signal: limit("the end of the killed server") });
  };
  return { fetch: (target, init) => ask(url, target, init), hasEnded: () => hasEnded, end };
}

// Content of a writer: long and uniform, so that a mixture would be noticed.
const content = (writer, turn) => `${writer}-${turn};`.repeat(5_000);

test("acknowledged writes are intact after a crash, and no lease has two holders", async (t) => {
  const persist = folder(t);
  const known = new Map();
  const holders = new Map();
  for (let round = 0; round < ROUNDS; round += 1) {
    const server = await serve(persist);
    t.after(() => server.end("SIGKILL").catch(() => {}));
    await check(server, known);
    let done = 0;
    let kill;
    const killed = new Promise((resolve, reject) => {
      kill = resolve;
      const late = limit(`${WRITERS} acknowledged writes, and half as many again`);
      late.addEventListener("abort", () => reject(late.reason));
    });
    const writer = async (writer) => {
      const target = `/crash/${writer}`;
      for (let turn = round * 1_000; ; turn += 1) {
        const before = known.get(target);
        const headers = before?.tag ? { "if-match": before.tag } : {};
        try {
          const body = content(writer, turn);
          known.set(target, { ...before, maybe: [...(before?.maybe ?? []), body] });
          const answer = await server.fetch(target, { method: "PUT", body, headers });
          if ([200, 201].includes(answer.status)) {
            known.set(target, { tag: answer.headers.get("etag"), body, maybe: [] });
            done += 1;
          }
        } catch {
          // A busy runtime closes some connections before it reads their requests.
          if (server.hasEnded()) return;
        }
        if (done > WRITERS + WRITERS / 2) {
          kill();
        }
      }
    };
    if (round === 0) {
      await Promise.all(LEASED.map((target) => server.fetch(target, { method: "PUT", body: "x" })));
    }
    const writers = Array.from({ length: WRITERS }, (_, at) => writer(at));
    // Two per blob, which race.
    writers.push(contend(server, holders), contend(server, holders));
    await killed;
    await server.end("SIGKILL");
    await Promise.all(writers);
  }
  const server = await serve(persist);
  t.after(() => server.end("SIGKILL").catch(() => {}));
  await check(server, known);
  await leases(server, holders);
});

// Each blob is the last acknowledged version, or one that was being written.
async function check({ fetch }, known) {
  for (const [target, expected] of known) {
    const read = await fetch(target);
    const body = read.status === 404 ? undefined : await read.text();
    const tag = read.headers.get("etag");
    const possible = [expected.body, ...expected.maybe];
    assert.ok(possible.includes(body), `${target} is neither the acknowledged version nor one that was being written`);
    if (body === expected.body && expected.tag !== undefined && expected.maybe.length === 0) {
      assert.equal(tag, expected.tag, target);
    }
    known.set(target, { tag, body, maybe: [] });
  }
}

// Requests the lease of every leased blob until the server is gone, and notes the confirmed holders.
async function contend({ fetch }, holders) {
  await Promise.all(
    LEASED.map(async (target) => {
      const late = limit(`the server of ${target} is gone`);
      for (;;) {
        late.throwIfAborted();
        const id = randomUUID();
        try {
          const answer = await fetch(...acquire(target, id));
          if (answer.status === 201) {
            holders.set(target, [...(holders.get(target) ?? []), id]);
          }
        } catch {
          return;
        }
      }
    }),
  );
}

// Confirmed holders still have their leases, exclusively.
async function leases({ fetch }, holders) {
  for (const target of LEASED) {
    const told = holders.get(target) ?? [];
    assert.ok(told.length <= 1, `${target} has the holders ${told}`);
    const other = await fetch(...acquire(target, randomUUID()));
    if (told.length === 1) {
      assert.equal(other.status, 409, target);
      const write = (headers) => fetch(target, { method: "PUT", body: "x", headers });
      assert.equal((await write({})).status, 412, target);
      assert.equal((await write({ "x-ms-lease-id": told[0] })).status, 200, target);
    } else {
      assert.ok([201, 409].includes(other.status), target);
    }
  }
}
