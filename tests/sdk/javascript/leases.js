// Leases beyond the tables: time, ids and protection.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { again, newBlob, newContainer, outcome, put, refused, test } from "./cases.js";

const A = "a0000000-0000-4000-8000-00000000000a";
const B = "b0000000-0000-4000-8000-00000000000b";
const slow = { waits: true };

async function acquired(client, duration, id = randomUUID()) {
  const lease = client.getBlobLeaseClient(id);
  await lease.acquireLease(duration);
  return lease;
}

async function state(client) {
  return (await client.getProperties()).leaseState;
}

function reached(client, wanted) {
  return again(async () => (await state(client)) === wanted, 200);
}

async function broken(client, period) {
  return (await client.getBlobLeaseClient().breakLease(period)).leaseTime;
}

test("a lease lasts its time and no longer", async () => {
  const blob = await newBlob();
  const before = Date.now();
  await acquired(blob, 15);
  const early = await outcome(() => acquired(blob, 15));
  // On a busy machine the lease may have ended by then.
  assert(early === "409 LeaseAlreadyPresent" || Date.now() - before >= 14_000, early);
  await again(async () => (await outcome(() => acquired(blob, 15))) === "ok", 200);
  // Measured from before the lease began, so it cannot end earlier. Some servers count whole seconds.
  assert(Date.now() - before >= 14_000);
}, slow);

test("a renewed lease lasts longer", async () => {
  const blob = await newBlob();
  const lease = await acquired(blob, 15);
  await pause(8_000);
  const renewed = Date.now();
  await lease.renewLease();
  await reached(blob, "expired");
  assert(Date.now() - renewed >= 14_000);
}, slow);

test("an expired lease can be renewed until a write", async () => {
  const [touched, left, changed] = await Promise.all([newBlob(), newBlob(), newBlob()]);
  const leases = await Promise.all([touched, left, changed].map((blob) => acquired(blob, 30)));
  for (const blob of [touched, left, changed]) await reached(blob, "expired");
  await put(touched, "second");
  await changed.setMetadata({ by: "another" });
  await leases[1].renewLease();
  assert.equal(await state(left), "leased");
  for (const lease of [leases[0], leases[2]]) {
    await refused(() => lease.renewLease(), 409, "LeaseIdMismatchWithLeaseOperation");
  }
  assert.deepEqual([await state(touched), await state(changed)], ["available", "available"]);
}, slow);

test("a break ends after its period", async () => {
  const blob = await newBlob();
  await acquired(blob, -1, A);
  const before = Date.now();
  assert.equal(await broken(blob, 30), 30);
  await refused(() => put(blob, "x"), 412, "LeaseIdMissing");
  await put(blob, "the holder's last words", { conditions: { leaseId: A } });
  await reached(blob, "broken");
  assert(Date.now() - before >= 29_000);
  await put(blob, "free");
  assert.equal(await state(blob), "available");
}, slow);

test("a lease shows in properties and in lists", async () => {
  const container = await newContainer();
  const blob = await newBlob(container);
  await acquired(blob, 60);
  const { value: listed } = await container.listBlobsFlat().next();
  for (const { leaseStatus, leaseState, leaseDuration } of [listed.properties, await blob.getProperties()]) {
    assert.deepEqual([leaseStatus, leaseState, leaseDuration], ["locked", "leased", "fixed"]);
  }
});

test("a changed id fences the old one", async () => {
  const blob = await newBlob();
  const lease = await acquired(blob, -1, A);
  await lease.changeLease(B);
  assert.equal(lease.leaseId, B);
  await refused(() => put(blob, "x", { conditions: { leaseId: A } }), 412, "LeaseIdMismatchWithBlobOperation");
  await put(blob, "x", { conditions: { leaseId: B } });
});

test("every kind of write needs the lease", async () => {
  const blob = await newBlob();
  const { leaseId } = await acquired(blob, -1);
  for (const write of [
    (conditions) => blob.stageBlock("MDAwMg==", "x", 1, { conditions }),
    (conditions) => blob.commitBlockList(["MDAwMg=="], { conditions }),
    (conditions) => blob.setHTTPHeaders({}, { conditions }),
    (conditions) => blob.setMetadata({}, { conditions }),
    (conditions) => put(blob, "x", { conditions }),
  ]) {
    await refused(() => write({}), 412, "LeaseIdMissing");
    await refused(() => write({ leaseId: randomUUID() }), 412, "LeaseIdMismatchWithBlobOperation");
    await write({ leaseId });
  }
});

test("a container lease protects from deletion only", async () => {
  const container = await newContainer();
  const { leaseId } = await acquired(container, -1);
  const blob = await newBlob(container);
  await put(blob, "y");
  await blob.delete();
  await container.setMetadata({ colour: "red" });
  await refused(() => container.delete(), 412, "LeaseIdMissing");
  const other = { leaseId: randomUUID() };
  await refused(() => container.delete({ conditions: other }), 412, "LeaseIdMismatchWithContainerOperation");
  await container.delete({ conditions: { leaseId } });
  await refused(() => container.getProperties(), 404, "ContainerNotFound");
});
