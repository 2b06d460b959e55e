// IFMATCH_LEASES=off: R2's conditions alone decide, and no Durable Object is asked.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { options } from "../miniflare/options.mjs";
import { signed } from "./azure.mjs";
import { BETWEEN, COUNTING, FOLDER, HOLDING, SET, ask, held, interposed, set, start } from "./support.mjs";

const bindings = { IFMATCH_LEASES: "off" };

/** Two isolates of one bucket, without the binding of the records. `settings` are those of the second. */
async function two(t, settings = {}) {
  const first = options({ folder: FOLDER, bindings, worker: { durableObjects: {} } });
  const second = options({ folder: FOLDER, bindings, worker: { durableObjects: {}, name: "other" }, ...settings });
  const miniflare = new Miniflare({ ...first, workers: [...first.workers, ...second.workers] });
  t.after(() => miniflare.dispose());
  await miniflare.ready;
  const urls = [await miniflare.unsafeGetDirectURL("ifmatch"), await miniflare.unsafeGetDirectURL("other")];
  const fetches = urls.map((url) => (target, init) => ask(url, target, init));
  return { fetches, bucket: await miniflare.getR2Bucket("BUCKET", "ifmatch") };
}

const write = (fetch, body, headers, target = "/docs/a") => fetch(target, { method: "PUT", body, headers });
const etag = (response) => response.headers.get("etag");
const statuses = (responses) => responses.map((response) => response.status).sort();

test("of the writers and deleters of one version in two isolates, one succeeds", async (t) => {
  const { fetches } = await two(t);
  let version = etag(await write(fetches[0], "0", { "if-none-match": "*" }));
  for (let round = 1; round <= 6; round += 1) {
    const headers = { "if-match": version };
    const deletes = round % 2 === 0;
    const racers = fetches.flatMap((fetch, at) => [0, 1, 2].map((nth) =>
      deletes && nth === 0
        ? fetch("/docs/a", { method: "DELETE", headers })
        : write(fetch, `${round} ${at} ${nth}`, headers)));
    const answers = await Promise.all(racers);
    const done = answers.filter((answer) => answer.ok);
    assert.equal(done.length, 1, `round ${round}: ${statuses(answers)}`);
    const found = await fetches[round % 2]("/docs/a");
    assert.equal(etag(found), etag(done[0]), "the only success is what is there");
    if (found.status === 200) version = etag(found);
    else version = etag(await write(fetches[0], "again", { "if-none-match": "*" }));
  }
});

test("of the creators in two isolates, one succeeds", async (t) => {
  const { fetches } = await two(t);
  const creators = fetches.flatMap((fetch, at) => [0, 1, 2].map((nth) => write(fetch, `${at} ${nth}`, { "if-none-match": "*" })));
  assert.deepEqual(statuses(await Promise.all(creators)), [201, 412, 412, 412, 412, 412]);
});

test("a version whose bytes return is another one", async (t) => {
  // The first isolate's write to the bucket waits, while the second writes other bytes and the same ones again.
  const { fetches, bucket } = await two(t, interposed(t, { wrap: HOLDING, intercept: SET }));
  const [direct, slow] = fetches;
  const version = etag(await write(direct, "same", { "if-none-match": "*" }));
  const release = await held(slow, "/docs/a", { method: "PUT", body: "late", headers: { "if-match": version } });
  const other = etag(await write(direct, "other", { "if-match": version }));
  const again = etag(await write(direct, "same", { "if-match": other }));
  assert.notEqual(again, version);
  assert.equal((await bucket.head("docs/a")).httpEtag.slice(1, -1), version.slice(1).split("-")[0], "R2's own tag has returned");
  assert.equal((await release()).status, 412);
  assert.equal(await (await direct("/docs/a")).text(), "same");
});

test("a deleted blob is gone, whatever is left of it", async (t) => {
  const wrap = `(env) => {
    const between = ${BETWEEN};
    const fail = (name, args, call) => {
      if (name === "delete" && globalThis.fail > 0) throw new Error("Network connection lost.");
      return call(...args);
    };
    return { ...env, BUCKET: between(env.BUCKET, fail) };
  }`;
  const { fetches, bucket } = await two(t, interposed(t, { wrap, intercept: SET }));
  const [direct, failing] = fetches;
  const version = etag(await write(direct, "one", { "if-none-match": "*" }));
  await write(direct, "kept", {}, "/docs/b");
  await set(failing, "fail", 1);
  assert.equal((await failing("/docs/a", { method: "DELETE", headers: { "if-match": version } })).status, 204);
  assert.ok((await bucket.head("docs/a")).customMetadata["ifmatch-deleted"], "the tombstone is still there");
  for (const fetch of fetches) {
    assert.equal((await fetch("/docs/a")).status, 404);
    assert.equal((await fetch("/docs/a", { method: "HEAD" })).status, 404);
    assert.deepEqual((await (await fetch("/docs")).json()).blobs.map((blob) => blob.name), ["b"]);
    assert.equal((await write(fetch, "x", { "if-match": "*" })).status, 412);
  }
  // For a minute, the deleter might still remove what is there.
  const early = await write(direct, "two", { "if-none-match": "*" });
  assert.deepEqual([early.status, early.headers.has("retry-after")], [503, true]);
});

// The tombstone and its removal are two writes of a key, and R2 takes one per second.
test("a removal that R2 refuses is repeated, and the name is free again", async (t) => {
  const wrap = `(env) => {
    const between = ${BETWEEN};
    const refuse = (name, args, call) => {
      if (name === "delete" && globalThis.refuse-- > 0) throw new Error("delete: Reduce your concurrent request rate for the same object. (10058)");
      return call(...args);
    };
    return { ...env, BUCKET: between(env.BUCKET, refuse) };
  }`;
  const { fetches, bucket } = await two(t, interposed(t, { wrap, intercept: SET }));
  const [direct, refused] = fetches;
  const version = etag(await write(direct, "one", { "if-none-match": "*" }));
  await set(refused, "refuse", 2);
  assert.equal((await refused("/docs/a", { method: "DELETE", headers: { "if-match": version } })).status, 204);
  assert.equal(await bucket.head("docs/a"), null);
  assert.equal((await write(direct, "two", { "if-none-match": "*" })).status, 201);
});

test("a creation waits until a deletion has ended", async (t) => {
  const { fetches } = await two(t);
  for (let round = 0; round < 3; round += 1) {
    const version = etag(await write(fetches[0], `${round}`, { "if-none-match": "*" }));
    const [deleted, created] = await Promise.all([
      fetches[0]("/docs/a", { method: "DELETE", headers: { "if-match": version } }),
      write(fetches[1], "next", { "if-none-match": "*" }),
    ]);
    assert.equal(deleted.status, 204);
    assert.ok([201, 412].includes(created.status), String(created.status));
    const found = await fetches[0]("/docs/a");
    assert.equal(found.status, created.status === 201 ? 200 : 404, "a creation that was answered is there");
    if (found.status === 200) await fetches[0]("/docs/a", { method: "DELETE" });
  }
});

test("nothing but R2 is asked", async (t) => {
  const { fetch } = await start(t, { ...interposed(t, COUNTING), bindings });
  const counted = async (work) => {
    await fetch("/-/count");
    const response = await work();
    await response.text();
    const { a, b, objects } = await (await fetch("/-/count")).json();
    return [response.status, a, b, objects];
  };
  let version;
  assert.deepEqual(await counted(async () => { const r = await write(fetch, "x", { "if-none-match": "*" }); version = etag(r); return r; }), [201, 1, 2, 0]);
  assert.deepEqual(await counted(() => fetch("/docs/a")), [200, 0, 1, 0]);
  assert.deepEqual(await counted(() => fetch("/docs/a", { headers: { "if-none-match": version } })), [304, 0, 1, 0]);
  assert.deepEqual(await counted(async () => { const r = await write(fetch, "y", { "if-match": version }); version = etag(r); return r; }), [200, 1, 2, 0]);
  assert.deepEqual(await counted(() => write(fetch, "z", { "if-match": '"x"' })), [412, 0, 1, 0]);
  assert.deepEqual(await counted(() => fetch("/docs")), [200, 1, 0, 0]);
  assert.deepEqual(await counted(() => fetch("/docs/a", { method: "DELETE", headers: { "if-match": version } })), [204, 1, 2, 0]);
});

test("what is not promised is refused", async (t) => {
  const { fetch } = await start(t, { bindings });
  assert.equal((await write(fetch, "x", {})).status, 201);
  for (const [target, headers, method = "PUT"] of [
    ["/docs/a?comp=lease", { "x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1" }],
    ["/docs?restype=container&comp=lease", { "x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1" }],
    ["/docs?restype=container", {}, "DELETE"],
    ["/docs?restype=container&comp=metadata", { "x-ms-meta-a": "1" }],
  ]) {
    const refused = await fetch(...signed(method, target, headers));
    assert.deepEqual([refused.status, refused.headers.get("x-ms-error-code")], [501, "NotImplemented"], target);
  }
  const long = await write(fetch, new Uint8Array((8 << 20) + 1), { "if-match": "*" });
  assert.match((await long.json()).detail, /without leases, a body of more than 8 MiB/);
  assert.equal((await write(fetch, new Uint8Array((8 << 20) + 1), {})).status, 200);
});
