// The Durable Objects of the records, by the Worker's own messages: the register's contract, and complete listings.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options, urls } from "../miniflare/options.mjs";
import { ask as http, interposed, limit } from "./support.mjs";

// Forwards a message to the object named in the query.
const HAND_ON = `(request, env) => {
  const { pathname, searchParams } = new URL(request.url);
  return pathname === "/-/object" ? env.RECORDS.getByName(searchParams.get("name")).fetch(request) : undefined;
}`;

let miniflare;
let url;
let end;
before(async () => {
  const cleanups = [];
  const modules = interposed({ after: (cleanup) => cleanups.push(cleanup) }, { intercept: HAND_ON });
  miniflare = new Miniflare(options(modules));
  ({ blobs: url } = await urls(miniflare));
  end = () => Promise.all([miniflare.dispose(), ...cleanups.map((cleanup) => cleanup())]);
});
after(() => end());

// The messages of records/wire.rs: a version byte, and postcard.
const VERSION = 2;
const number = (value) => {
  const bytes = [];
  for (let left = BigInt(value); ; left >>= 7n) {
    if (left < 128n) return [...bytes, Number(left)];
    bytes.push(Number(left & 127n) | 128);
  }
};
const text = (value) => {
  const bytes = [...Buffer.from(value)];
  return [...number(bytes.length), ...bytes];
};
const option = (value, write) => (value === undefined ? [0] : [1, ...write(value)]);
const entry = ({ revision, record }) => [...number(revision), ...text(record)];
const asks = {
  load: () => [0],
  swap: (key, expected, next, kept = 0) => [1, ...text(key), ...number(expected), ...option(next, entry), kept],
  note: (name) => [2, ...text(name)],
  noted: (name) => [3, ...text(name)],
  remove: (name, note) => [4, ...text(name), ...number(note)],
  names: (prefix, after, limit = 1000) => [5, ...text(prefix), ...option(after, text), ...number(limit)],
};

function answer(bytes) {
  let at = 0;
  const byte = () => bytes[at++];
  const readNumber = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const next = byte();
      value |= BigInt(next & 127) << shift;
      if (next < 128) return value;
    }
  };
  const readText = () => {
    const length = Number(readNumber());
    at += length;
    return Buffer.from(bytes.slice(at - length, at)).toString();
  };
  const readOption = (read) => (byte() === 1 ? read() : undefined);
  const readEntry = () => ({ revision: readNumber(), record: readText() });
  assert.equal(byte(), VERSION);
  switch (byte()) {
    case 0: return { record: readOption(readEntry) };
    case 1: return "done";
    case 2: return { conflict: readOption(readEntry) };
    case 3: return { noted: readOption(readNumber) };
    case 4: return { names: Array.from({ length: Number(readNumber()) }, readText) };
    default: return { unavailable: readText() };
  }
}

async function say(object, message) {
  const target = `/-/object?name=${encodeURIComponent(object)}`;
  const response = await http(url, target, { method: "POST", body: Uint8Array.from(message) });
  assert.equal(response.status, 200);
  return answer(new Uint8Array(await response.arrayBuffer()));
}
const ask = (object, message) => say(object, [VERSION, ...message]);
const load = async (key) => (await ask(`record:${key}`, asks.load())).record;
const swap = (key, expected, next) => ask(`record:${key}`, asks.swap(key, expected, next));
const names = async (prefix, ...rest) => (await ask(`names:${prefix}`, asks.names(prefix, ...rest))).names;

test("a swap succeeds only at the expected revision", async () => {
  const key = "b/swap/a";
  assert.equal(await load(key), undefined);
  const first = { revision: 7n, record: "first" };
  const second = { revision: 2n ** 64n - 1n, record: "second" };
  assert.deepEqual(await swap(key, 3, first), { conflict: undefined });
  assert.equal(await swap(key, 0, first), "done");
  assert.deepEqual(await swap(key, 0, second), { conflict: first });
  assert.deepEqual(await swap(key, 8, second), { conflict: first });
  assert.equal(await swap(key, 7, second), "done");
  assert.deepEqual(await load(key), second);
  assert.equal(await swap(key, second.revision, undefined), "done");
  assert.equal(await load(key), undefined);
});

test("concurrent increments of a record are exact", async () => {
  const key = "b/swap/counter";
  let conflicts = 0;
  const late = limit("the last increment");
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let done = 0; done < 8; ) {
        late.throwIfAborted();
        const { revision = 0n, record = "0" } = (await load(key)) ?? {};
        const next = { revision: revision + 1n, record: String(Number(record) + 1) };
        const swapped = await swap(key, revision, next);
        conflicts += swapped !== "done";
        done += swapped === "done";
      }
    }),
  );
  assert.equal((await load(key)).record, "64");
  assert.ok(conflicts > 0, "there was no race");
});

test("names are listed in the order of their bytes, in pages, of one group", async () => {
  const keys = ["b", "a/b", "a", "a b", "Z", "\u00e4", "a%", "a_c", "aa", "10", "9"].map((name) => `b/listed/${name}`);
  await Promise.all([...keys, "b/listed2/x", "c/listed"].map((key) => swap(key, 0, { revision: 1, record: "x" })));
  const expected = keys.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  assert.deepEqual(await names("b/listed/"), expected);
  const paged = [];
  const late = limit("the last page of b/listed/");
  for (;;) {
    late.throwIfAborted();
    const page = await names("b/listed/", paged.at(-1), 3);
    if (page.length === 0) break;
    paged.push(...page);
  }
  assert.deepEqual(paged, expected);
  const some = await ask("names:b/listed/", asks.names("b/listed/a", "b/listed/a b"));
  assert.deepEqual(some.names, ["b/listed/a%", "b/listed/a/b", "b/listed/a_c", "b/listed/aa"]);
});

test("a deleted record is not listed", async () => {
  await swap("b/forgotten/a", 0, { revision: 1, record: "x" });
  await swap("b/forgotten/a", 1, undefined);
  assert.deepEqual(await names("b/forgotten/"), []);
});

test("each existing record is listed during concurrent creations and deletions", async () => {
  const keys = Array.from({ length: 6 }, (_, at) => `b/churn/${at}`);
  let revision = 1n;
  await Promise.all(
    keys.flatMap((key) =>
      Array.from({ length: 4 }, async () => {
        for (let turn = 0; turn < 12; turn += 1) {
          const found = await load(key);
          revision += 1n;
          await swap(key, found?.revision ?? 0n, found ? undefined : { revision, record: "x" });
        }
      }),
    ),
  );
  const listed = await names("b/churn/");
  for (const key of keys) {
    if ((await load(key)) !== undefined) {
      assert.ok(listed.includes(key), `${key} exists, and is not listed`);
    }
  }
});

test("a late or repeated removal keeps a name that was registered again", async () => {
  const group = "names:b/late/";
  const name = "b/late/a";
  const noted = async () => (await ask(group, asks.noted(name))).noted;
  await ask(group, asks.note(name));
  const first = await noted();
  await ask(group, asks.remove(name, first));
  assert.equal(await noted(), undefined);
  // The record is created again. A copy of the first registration arrives late, and then one of the removal.
  await ask(group, asks.note(name));
  await ask(group, asks.note(name));
  await ask(group, asks.remove(name, first));
  assert.notEqual(await noted(), undefined);
  assert.deepEqual(await names("b/late/"), [name]);
});

test("messages of another version and truncated messages are rejected and change nothing", async () => {
  const message = asks.swap("b/other/a", 0, { revision: 1, record: "x" });
  for (const said of [[VERSION + 1, ...message], [VERSION, ...message.slice(0, -1)], [VERSION, ...message, 0], [VERSION, 99], []]) {
    const { unavailable } = await say("record:b/other/a", said);
    assert.match(unavailable, /different releases/);
  }
  assert.equal(await load("b/other/a"), undefined);
});
