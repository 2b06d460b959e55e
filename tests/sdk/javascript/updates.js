// Optimistic concurrency: no lost updates, and one of many creators wins.

import assert from "node:assert/strict";
import { again, blobs, collected, newBlob, newContainer, outcome, put, race, refused, test, text } from "./cases.js";

const UNMET = "412 ConditionNotMet";

/** Returns the content of a blob and its tag. */
async function read(blob, conditions) {
  const response = await blob.download(0, undefined, { conditions });
  const chunks = await collected(response.readableStreamBody);
  return { etag: response.etag, content: Buffer.concat(chunks).toString() };
}

/** Returns true if a conditional write succeeded; other failures are errors. */
async function applied(call) {
  const answer = await outcome(call);
  assert(["ok", UNMET].includes(answer), answer);
  return answer === "ok";
}

async function repeat(times, step) {
  for (let round = 0; round < times; round += 1) await step(round);
}

test("optimistic updates add up", async () => {
  const blob = await newBlob();
  await put(blob, "0");
  const add = async () => {
    const { etag, content } = await read(blob);
    return applied(() => put(blob, String(Number(content) + 1), { conditions: { ifMatch: etag } }));
  };
  await race(6, () => repeat(10, () => again(add)));
  assert.equal(await text(blob), "60");
});

test("counters in metadata add up", async () => {
  const blob = await newBlob();
  await blob.setMetadata({ count: "0" });
  const add = async () => {
    const { etag, metadata } = await blob.getProperties();
    const count = String(Number(metadata.count) + 1);
    return applied(() => blob.setMetadata({ count }, { conditions: { ifMatch: etag } }));
  };
  await race(4, () => repeat(10, () => again(add)));
  assert.deepEqual((await blob.getProperties()).metadata, { count: "40" });
  assert.equal(await text(blob), "first");
});

test("one creator wins", async () => {
  const container = await newContainer();
  await repeat(5, async (round) => {
    const blob = container.getBlockBlobClient(`created ${round}`);
    const create = (number) => outcome(() => put(blob, `by ${number}`, { conditions: { ifNoneMatch: "*" } }));
    const answers = await race(6, create);
    assert.deepEqual(answers.toSorted(), [...Array(5).fill("409 BlobAlreadyExists"), "ok"]);
    assert.equal(await text(blob), `by ${answers.indexOf("ok")}`);
  });
});

test("one container creator wins", async () => {
  const container = blobs.getContainerClient(`${(await newContainer()).containerName}-new`);
  const answers = await race(6, () => outcome(() => container.create()));
  assert.deepEqual(answers.toSorted(), [...Array(5).fill("409 ContainerAlreadyExists"), "ok"]);
});

test("a stale tag replaces nothing", async () => {
  const blob = await newBlob();
  const conditions = { ifMatch: (await blob.getProperties()).etag };
  const { etag } = await put(blob, "the first editor's", { conditions });
  assert.notEqual(etag, conditions.ifMatch);
  for (const late of [
    () => put(blob, "the second editor's", { conditions }),
    () => blob.setMetadata({ editor: "second" }, { conditions }),
    () => blob.delete({ conditions }),
    () => blob.download(0, undefined, { conditions }),
  ]) {
    assert.equal(await outcome(late), UNMET);
  }
  assert.deepEqual(await read(blob), { etag, content: "the first editor's" });
  await blob.delete({ conditions: { ifMatch: etag } });
});

test("every write has a new tag", async () => {
  const blob = await newBlob();
  const tags = [(await blob.getProperties()).etag];
  await repeat(3, async () => {
    tags.push((await put(blob, "the same bytes")).etag, (await blob.setMetadata({ a: "b" })).etag);
  });
  await blob.delete();
  tags.push((await put(blob, "the same bytes")).etag);
  assert.equal(new Set(tags).size, tags.length);
  assert.equal((await blob.getProperties()).etag, tags.at(-1));
});

test("a cached download costs a 304", async () => {
  const blob = await newBlob();
  const cached = await read(blob);
  const conditions = { ifNoneMatch: cached.etag };
  await refused(() => read(blob, conditions), 304, "ConditionNotMet");
  await refused(() => blob.getProperties({ conditions }), 304, "ConditionNotMet");
  await put(blob, "second");
  const fresh = await read(blob, conditions);
  assert.deepEqual([cached.content, fresh.content], ["first", "second"]);
  assert.notEqual(fresh.etag, cached.etag);
});

test("a 304 names the version that the client has", async () => {
  const blob = await newBlob();
  const { etag } = await blob.getProperties();
  for (const call of [() => read(blob, { ifNoneMatch: etag }), () => blob.getProperties({ conditions: { ifNoneMatch: etag } })]) {
    const error = await call().catch((error) => error);
    assert.equal(error.response.headers.get("etag"), etag);
  }
});

test("readers see each configuration under its own tag", async () => {
  // One writer and many readers with a cache: tags match their content, and versions never go back.
  const blob = await newBlob();
  const first = await read(blob);
  const written = new Map([[first.etag, first.content]]);
  let failed = false;
  const reading = race(6, async () => {
    const seen = [];
    const poll = async () => {
      const answer = await outcome(async () => seen.push(await read(blob, { ifNoneMatch: seen.at(-1)?.etag })));
      assert(["ok", "304 ConditionNotMet"].includes(answer), answer);
      return failed || seen.at(-1).content === "version 20";
    };
    await again(poll, 1);
    return seen;
  });
  const writing = repeat(20, async (round) => {
    const content = `version ${round + 1}`;
    const conditions = { ifMatch: [...written.keys()].at(-1) };
    written.set((await put(blob, content, { conditions })).etag, content);
  }).catch((error) => {
    failed = true; // It ends the readers.
    throw error;
  });
  const [readers] = await Promise.all([reading, writing]);
  const order = [...written.values()];
  for (const seen of readers) {
    for (const { etag, content } of seen) assert.equal(written.get(etag), content);
    const versions = seen.map(({ content }) => order.indexOf(content));
    assert.deepEqual(versions, [...new Set(versions)].sort((a, b) => a - b), "a reader saw an older version again");
  }
});
