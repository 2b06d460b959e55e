// Patterns built on leases: leader election, a lock, a work queue, an update of several tables.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { again, newBlob, newContainer, newTable, outcome, put, race, refused, test, text } from "./cases.js";

const HELD = "409 LeaseAlreadyPresent";

/** Returns the lease, or undefined if another client holds it. */
async function tryAcquire(client, duration = -1) {
  const lease = client.getBlobLeaseClient(randomUUID());
  const answer = await outcome(() => lease.acquireLease(duration));
  assert(["ok", HELD].includes(answer), answer);
  return answer === "ok" ? lease : undefined;
}

function holding({ leaseId }) {
  return { conditions: { leaseId } };
}

test("of six racers one leads", async () => {
  const blob = await newBlob();
  for (let term = 0; term < 5; term += 1) {
    const leaders = (await race(6, () => tryAcquire(blob))).filter(Boolean);
    assert.equal(leaders.length, 1, `term ${term}`);
    const [leader] = leaders;
    await refused(() => put(blob, "a follower"), 412, "LeaseIdMissing");
    await put(blob, `term ${term}`, holding(leader));
    await leader.renewLease();
    await leader.releaseLease();
  }
});

test("a silent leader is replaced by one follower", async () => {
  const blob = await newBlob();
  const old = await tryAcquire(blob, 30);
  await put(blob, "old", holding(old));
  const answers = await race(5, async (number) => {
    const won = await again(async () => (await tryAcquire(blob)) ?? ((await text(blob)) !== "old" && "lost"), 300);
    if (won !== "lost") await put(blob, `follower ${number}`, holding(won));
    return won;
  });
  const leaders = [...answers.keys()].filter((number) => answers[number] !== "lost");
  assert.equal(leaders.length, 1);
  await refused(() => put(blob, "old again", holding(old)), 412, "LeaseIdMismatchWithBlobOperation");
  assert.equal(await text(blob), `follower ${leaders[0]}`);
}, { waits: true });

test("a lock keeps four clients apart", async () => {
  // The protected writes are unconditional, so only the lock prevents lost updates.
  const [lock, shared] = await Promise.all([newBlob(), newBlob()]);
  await put(shared, "0");
  await race(4, async () => {
    for (let round = 0; round < 5; round += 1) {
      const lease = await again(() => tryAcquire(lock));
      await put(shared, String(Number(await text(shared)) + 1));
      await lease.releaseLease();
    }
  });
  assert.equal(await text(shared), "20");
});

/** Returns a free job with its lease, or undefined. */
async function take(container, duration) {
  for await (const { name, properties } of container.listBlobsFlat({ prefix: "job" })) {
    const job = container.getBlockBlobClient(name);
    const lease = job.getBlobLeaseClient(randomUUID());
    if (properties.leaseState !== "leased" && (await outcome(() => lease.acquireLease(duration))) === "ok") {
      return { job, lease };
    }
  }
}

test("three workers do each job once", async () => {
  const container = await newContainer();
  const jobs = Array.from({ length: 12 }, (_, number) => `job ${number}`);
  for (const name of jobs) await put(container.getBlockBlobClient(name), name);
  const done = await race(3, async () => {
    const mine = [];
    const work = async () => {
      const taken = await take(container, -1);
      if (!taken) return (await container.listBlobsFlat({ prefix: "job" }).next()).done;
      const result = container.getBlockBlobClient(`result of ${taken.job.name}`);
      // Fails if a second worker has done the job.
      await put(result, await text(taken.job, holding(taken.lease)), { conditions: { ifNoneMatch: "*" } });
      await taken.job.delete(holding(taken.lease));
      mine.push(taken.job.name);
      return false;
    };
    await again(work, 1);
    return mine;
  });
  assert.deepEqual(done.flat().sort(), jobs.sort());
});

test("a late worker is fenced", async () => {
  const container = await newContainer();
  for (const name of ["job", "job that is done"]) await put(container.getBlockBlobClient(name), "to do");
  const late = [await take(container, 30), await take(container, 30)];
  assert.equal(await take(container, 30), undefined, "both jobs are taken");
  // The late worker sleeps too long, and another takes over.
  const takeover = () => again(() => take(container, -1), 300);
  const [first, second] = [await takeover(), await takeover()];
  await put(first.job, "by the second worker", holding(first.lease));
  await second.job.delete(holding(second.lease));
  const stale = (job) => late.find((taken) => taken.job.name === job.name).lease;
  for (const write of [
    () => put(first.job, "by the late worker", holding(stale(first.job))),
    () => first.job.delete(holding(stale(first.job))),
  ]) {
    await refused(write, 412, "LeaseIdMismatchWithBlobOperation");
  }
  await refused(() => stale(first.job).renewLease(), 409, "LeaseIdMismatchWithLeaseOperation");
  await refused(() => stale(second.job).renewLease(), 404, "BlobNotFound");
  assert.equal(await text(first.job), "by the second worker");
}, { waits: true });

test("a lease protects an update of two tables", async () => {
  // Moves money between two tables without a common transaction, and without conditions.
  const [lock, ...accounts] = await Promise.all([newBlob(), newTable(), newTable()]);
  const key = { partitionKey: "p", rowKey: "r" };
  const balance = async (account) => (await account.getEntity("p", "r")).balance;
  for (const account of accounts) await account.createEntity({ ...key, balance: 100 });
  await race(4, async (number) => {
    for (let step = 0; step < 4; step += 1) {
      const lease = await again(() => tryAcquire(lock));
      const [source, target] = (number + step) % 2 ? accounts : accounts.toReversed();
      for (const [account, change] of [[source, -number - 1], [target, number + 1]]) {
        await account.updateEntity({ ...key, balance: (await balance(account)) + change });
      }
      await lease.releaseLease();
    }
  });
  assert.equal((await balance(accounts[0])) + (await balance(accounts[1])), 200);
});
