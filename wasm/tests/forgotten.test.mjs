// Expiry: a day after their last change, objects delete records that R2 makes redundant, and the cron trigger what is left of
// deleted containers.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { acquire, signed } from "./azure.mjs";
import { HOLDING, SET, held, interposed, start } from "./support.mjs";

// Advances the clocks, reports the tables of objects, rings their alarms, and triggers the cron on demand.
const SETTINGS = {
  first: `const [date, elapsed] = [Date.now, performance.now.bind(performance)];
    globalThis.ahead = 0;
    Date.now = () => date() + globalThis.ahead;
    performance.now = () => elapsed() + globalThis.ahead;`,
  wrap: HOLDING,
  intercept: `(request, env) => {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname === "/-/set") return (${SET})(request);
    if (pathname === "/-/cron") return Worker.scheduled(undefined, env).then(() => new Response());
    if (pathname === "/-/keys") return env.BUCKET.list().then(({ objects }) => Response.json(objects.map(({ key }) => key)));
    if (pathname === "/-/ahead") {
      globalThis.ahead += Number(searchParams.get("ms"));
      return new Response();
    }
    if (pathname !== "/-/object") return;
    return env.RECORDS.getByName(searchParams.get("name")).fetch("https://records/" + searchParams.get("do"));
  }`,
  record: `(object, state) => new Proxy(object, {
    get(object, name) {
      const value = Reflect.get(object, name, object);
      if (name !== "fetch") return typeof value === "function" ? value.bind(object) : value;
      return async (request) => {
        const { pathname } = new URL(request.url);
        if (pathname === "/ring") {
          await state.storage.deleteAlarm();
          await object.alarm();
        } else if (pathname !== "/tell") {
          return object.fetch(request);
        }
        const tables = [...state.storage.sql.exec("SELECT name FROM sqlite_master WHERE type = 'table'")].map(({ name }) => name);
        return Response.json({
          alarm: (await state.storage.getAlarm()) !== null,
          kept: tables.filter((name) => !name.startsWith("_cf")),
        });
      };
    },
  })`,
};
const HOUR = 3_600_000;

async function worker(t) {
  const { fetch } = await start(t, interposed(t, SETTINGS));
  const object = async (name, what) => (await fetch(`/-/object?do=${what}&name=${encodeURIComponent(name)}`)).json();
  return { fetch, tell: (name) => object(name, "tell"), ring: (name) => object(name, "ring") };
}
const put = (fetch, target, body, headers) => fetch(target, { method: "PUT", body, headers });
const later = (fetch, hours) => fetch(`/-/ahead?ms=${hours * HOUR}`);

const NOTHING = { alarm: false, kept: [] };
const KEPT = { alarm: true, kept: ["record"] };

test("the record of a blob expires with its database, and the blob is unchanged", async (t) => {
  const { fetch, tell, ring } = await worker(t);
  const tag = (await put(fetch, "/docs/there", "x")).headers.get("etag");
  await put(fetch, "/docs/gone", "x");
  assert.equal((await fetch("/docs/gone", { method: "DELETE" })).status, 204);
  for (const name of ["record:b/docs/there", "record:b/docs/gone"]) {
    assert.deepEqual(await tell(name), KEPT, name);
    assert.deepEqual(await ring(name), KEPT, "it is recent");
  }
  await later(fetch, 26);
  for (const name of ["record:b/docs/there", "record:b/docs/gone"]) {
    assert.deepEqual(await ring(name), NOTHING, name);
  }
  assert.deepEqual(await tell("names:b/docs/"), NOTHING, "the names are deleted as well");
  assert.equal((await fetch("/docs/there")).headers.get("etag"), tag);
  assert.equal((await put(fetch, "/docs/there", "y", { "if-match": '"other"' })).status, 412);
  assert.equal((await put(fetch, "/docs/there", "y", { "if-match": tag })).status, 200);
  assert.deepEqual(await tell("record:b/docs/there"), KEPT);
});

test("the records of an infinite lease and of a container do not expire", async (t) => {
  const { fetch, ring } = await worker(t);
  await fetch(...signed("PUT", "/docs?restype=container"));
  await put(fetch, "/docs/leased", "x");
  const id = randomUUID();
  assert.equal((await fetch(...acquire("/docs/leased", id))).status, 201);
  await later(fetch, 1_000);
  for (const name of ["record:b/docs/leased", "record:c/docs"]) {
    assert.deepEqual(await ring(name), { alarm: false, kept: ["record"] }, name);
  }
  assert.equal((await put(fetch, "/docs/leased", "y")).status, 412);
  assert.equal((await put(fetch, "/docs/leased", "y", { "x-ms-lease-id": id })).status, 200);
  // A change sets the alarm again.
  assert.equal((await fetch("/docs/leased", { method: "DELETE", headers: { "x-ms-lease-id": id } })).status, 204);
  await later(fetch, 26);
  assert.deepEqual(await ring("record:b/docs/leased"), NOTHING);
});

test("the object of a late write in a deleted container stays hidden, and is removed", async (t) => {
  const { fetch, tell, ring } = await worker(t);
  const keys = async () => (await fetch("/-/keys")).json();
  await fetch(...signed("PUT", "/docs?restype=container"));
  const release = await held(fetch, "/docs/late", { method: "PUT", body: "x" });
  assert.equal((await fetch(...signed("DELETE", "/docs?restype=container"))).status, 202);
  await release();
  assert.deepEqual(await keys(), ["docs/late"]);
  assert.equal((await fetch("/docs/late")).status, 404);
  await later(fetch, 26);
  assert.deepEqual(await ring("record:c/docs"), { alarm: false, kept: ["record"] });
  assert.equal((await fetch("/docs/late")).status, 404);
  await fetch("/-/cron");
  assert.deepEqual([await keys(), await tell("record:c/docs")], [[], NOTHING]);
  assert.equal((await fetch("/docs/late")).status, 404);
});
