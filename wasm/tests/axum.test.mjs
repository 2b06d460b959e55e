// examples/worker_axum: the layer around an axum router in a Worker.
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { limit, start } from "./support.mjs";

const folder = path.resolve(process.env.IFMATCH_EXAMPLE ?? path.join(import.meta.dirname, "../../target/worker-axum"));
const worker = { r2Buckets: { NOTES: "notes" }, bindings: {} };

test("the second of two editors gets 412, and a reader with the current version gets 304", async (t) => {
  const { fetch } = await start(t, { folder, worker });
  assert.equal((await fetch("/notes/today")).status, 404);
  assert.equal((await fetch("/notes/today", { method: "PUT", body: "milk" })).status, 200);

  const read = await fetch("/notes/today");
  const etag = read.headers.get("etag");
  assert.equal(await read.text(), "milk");
  assert.match(etag, /^"[0-9a-f]{64}"$/);
  const again = await fetch("/notes/today", { headers: { "if-none-match": etag } });
  assert.deepEqual([again.status, await again.text()], [304, ""]);

  const mine = await fetch("/notes/today", { method: "PUT", body: "bread", headers: { "if-match": etag } });
  assert.equal(mine.status, 200);
  const theirs = await fetch("/notes/today", { method: "PUT", body: "eggs", headers: { "if-match": etag } });
  assert.equal(theirs.status, 412);
  assert.equal(await (await fetch("/notes/today")).text(), "bread");
});

test("one of 20 concurrent creations of a note succeeds", async (t) => {
  const { fetch } = await start(t, { folder, worker });
  const create = (body) => fetch("/notes/race", { method: "PUT", body, headers: { "if-none-match": "*" } });
  const answers = await Promise.all(Array.from({ length: 20 }, (_, number) => create(`racer ${number}`)));
  const won = answers.flatMap(({ status }, number) => (status === 200 ? [`racer ${number}`] : []));
  assert.equal(won.length, 1);
  assert.equal(await (await fetch("/notes/race")).text(), won[0]);
});

test("eight concurrent clients increment a counter exactly", async (t) => {
  const { fetch } = await start(t, { folder, worker });
  await fetch("/notes/counter", { method: "PUT", body: "0" });
  const increase = async () => {
    const late = limit("an increment of /notes/counter");
    for (;;) {
      late.throwIfAborted();
      const read = await fetch("/notes/counter");
      const headers = { "if-match": read.headers.get("etag") };
      const body = String(Number(await read.text()) + 1);
      const { status } = await fetch("/notes/counter", { method: "PUT", body, headers });
      if (status === 200) return;
      assert.ok([409, 412].includes(status), `${status}`);
    }
  };
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (let turn = 0; turn < 3; turn += 1) await increase();
  }));
  assert.equal(await (await fetch("/notes/counter")).text(), "24");
});

test("writes without a condition that end at once are all answered", async (t) => {
  const { fetch } = await start(t, { folder, worker });
  // The router has no POST. After each, the layer marks the note's state as unknown.
  const posts = Array.from({ length: 30 }, () => fetch("/notes/posted", { method: "POST", body: "x" }));
  const answers = await Promise.all(posts);
  assert.deepEqual(answers.map(({ status }) => status), Array(30).fill(405));
});
