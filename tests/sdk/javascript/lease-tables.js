// Every lease operation and every use in every lease state: ../cases/lease-operations.txt and lease-uses.txt.

import assert from "node:assert/strict";
import { again, check, newBlob, newContainer, outcome, rows, test } from "./cases.js";
import { operations } from "./operations.js";

const ids = {
  a: "a0000000-0000-4000-8000-00000000000a",
  b: "b0000000-0000-4000-8000-00000000000b",
  c: "c0000000-0000-4000-8000-00000000000c",
};

const uses = {
  ...operations,
  write: operations.metadata,
  read: operations.get,
  "container-write": (container) => container.uploadBlockBlob("another", "x", 1),
  "container-read": (container) => container.listBlobsFlat().next(),
};

// Without acquisitions that propose no id: the client always sends one.
const operationRows = rows("lease-operations.txt").filter((row) => row.operation !== "acquire-none");

for (const row of operationRows) {
  test(`lease operation: ${row.operation} ${row.state}`, () => operate(newBlob, row), waiting(row));
  test(`container lease operation: ${row.operation} ${row.state}`, () => operate(newContainer, row), waiting(row));
}
for (const row of rows("lease-uses.txt")) {
  test(`lease use: ${row.use} ${row.state}`, () => use(row), waiting(row));
}

function waiting(row) {
  return { waits: row.state === "expired" };
}

async function operate(make, row) {
  const client = await inState(await make(), row.state);
  const before = await client.getProperties();
  await check(() => perform(client, row.operation), row.code === "-" ? { status: "ok" } : row);
  const after = await client.getProperties();
  assert.equal(after.leaseState, row.after);
  assert.equal(after.leaseStatus, ["leased", "breaking"].includes(row.after) ? "locked" : "unlocked");
  assert.deepEqual([after.etag, after.lastModified], [before.etag, before.lastModified], "a lease changed the tag");
}

async function use(row) {
  const client = await inState(await (row.use.startsWith("container-") ? newContainer() : newBlob()), row.state);
  const [, name, holder] = /^(.*?)(?:-([abc]))?$/.exec(row.use);
  await check(() => uses[name](client, holder && { leaseId: ids[holder] }), row);
  if (row.after === "gone") assert.match(await outcome(() => client.getProperties()), /^404 /);
  else assert.equal((await client.getProperties()).leaseState, row.after);
}

function perform(client, operation) {
  const [name, first, second] = operation.split("-");
  const lease = client.getBlobLeaseClient(ids[first] ?? ids.a);
  const calls = {
    acquire: () => lease.acquireLease(60),
    renew: () => lease.renewLease(),
    change: () => lease.changeLease(ids[second]),
    release: () => lease.releaseLease(),
    break: () => lease.breakLease(Number(first)),
  };
  return calls[name]();
}

/** Creates a blob or container in the state, with A as the holder. */
async function inState(client, state) {
  const lease = client.getBlobLeaseClient(ids.a);
  if (state !== "available") await lease.acquireLease(state === "expired" ? 15 : -1);
  if (state === "breaking") await lease.breakLease(60);
  if (state === "broken") await lease.breakLease(0);
  const reached = async () => (await client.getProperties()).leaseState === state;
  if (state === "expired") await again(reached, 500);
  else assert(await reached(), `not ${state}`);
  return client;
}
