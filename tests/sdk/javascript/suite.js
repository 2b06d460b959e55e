// Runs all cases concurrently. Known errors of the server under test must fail.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, describe, it } from "node:test";
import { cases, serverErrors } from "./cases.js";
import "./leases.js";
import "./lease-patterns.js";
import "./updates.js";
import "./blobs.js";
import "./tables.js";

const known = knownErrors(process.env.IFMATCH_SDK_KNOWN_ERRORS);
const unknown = [...known.keys()].filter((title) => !cases.has(title));
assert.deepEqual(unknown, [], "known errors of cases that do not exist");

// Cases that wait run first, so that the others run in the meantime.
const ordered = [...cases].sort(([, a], [, b]) => Number(b.waits) - Number(a.waits));

// Few at a time: on a busy machine, 503 would end a write that waits 10 s for another one.
describe("the clients for JavaScript", { concurrency: 8 }, () => {
  after(() => assert.deepEqual(serverErrors, [], "the server failed"));
  for (const [title, { body }] of ordered) {
    if (!known.has(title)) {
      it(title, body);
      continue;
    }
    it(`${title} (known error: ${known.get(title)})`, () =>
      assert.rejects(body, undefined, "passes after all: take it out of the list of known errors"));
  }
});

function knownErrors(path) {
  const errors = path ? JSON.parse(readFileSync(path, "utf8")) : [];
  const titles = ({ cases = [], javascript = [] }) => [...cases, ...javascript];
  return new Map(errors.flatMap((error) => titles(error).map((title) => [title, error.reason])));
}
