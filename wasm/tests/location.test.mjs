// Where Cloudflare places the Durable Objects. The runtime of this machine has no jurisdictions: these tests see what it is asked for.
import assert from "node:assert/strict";
import { test } from "node:test";

import { BETWEEN, interposed, start } from "./support.mjs";

/** /-/asked returns the objects asked for since the last call, each with its jurisdiction and its location hint. */
const WATCHED = {
  wrap: `(env) => {
    const between = ${BETWEEN};
    globalThis.asked ??= [];
    const watched = (jurisdiction) => between(env.RECORDS, (name, args, call) => {
      if (name === "jurisdiction") return watched(args[0]);
      globalThis.asked.push([jurisdiction, args[0], args[1]?.locationHint ?? null]);
      // The same name means another object in each jurisdiction.
      return call(jurisdiction + "/" + args[0], ...args.slice(1));
    });
    return { ...env, RECORDS: watched(null) };
  }`,
  intercept: `(request) => {
    if (!request.url.endsWith("/-/asked")) return;
    const asked = globalThis.asked;
    globalThis.asked = [];
    return Response.json(asked);
  }`,
};

for (const [name, bindings, expected] of [
  ["a jurisdiction and a location hint", { IFMATCH_JURISDICTION: "eu", IFMATCH_LOCATION_HINT: "weur" }, ["eu", "weur"]],
  ["a jurisdiction", { IFMATCH_JURISDICTION: "fedramp" }, ["fedramp", null]],
  ["neither", {}, [null, null]],
]) {
  test(`${name}: all objects are there, also those that objects ask for`, async (t) => {
    const { fetch } = await start(t, { ...interposed(t, WATCHED), bindings });
    assert.equal((await fetch("/docs/a", { method: "PUT", body: "x" })).status, 201);
    assert.equal((await fetch("/docs/a?lease", { method: "POST", headers: { "lease-duration": "15" } })).status, 201);
    const asked = await (await fetch("/-/asked")).json();
    const names = new Set(asked.map(([, name]) => name));
    // An object registers its own name.
    for (const name of ["record:c/docs", "names:c/", "record:b/docs/a", "names:b/docs/"]) assert.ok(names.has(name), [...names].join(", "));
    for (const [jurisdiction, name, hint] of asked) assert.deepEqual([jurisdiction, hint], expected, name);
  });
}

test("a runtime without jurisdictions serves nothing, and says why", async (t) => {
  const { fetch } = await start(t, { bindings: { IFMATCH_JURISDICTION: "eu" } });
  assert.equal((await fetch("/docs/a", { method: "PUT", body: "x" })).status, 503);
  assert.match((await (await fetch("/-/health")).json()).detail, /IFMATCH_JURISDICTION: this runtime cannot place objects in a jurisdiction/);
});
