// Entities: inserts, changes, queries and errors.

import assert from "node:assert/strict";
import { AzureNamedKeyCredential, TableClient, odata } from "@azure/data-tables";
import { again, collected, newTable, outcome, race, refused, tableClient, test } from "./cases.js";

const UNMET = "412 UpdateConditionNotSatisfied";

function entity(values, rowKey = "r", partitionKey = "p") {
  return { partitionKey, rowKey, ...values };
}

/** Returns the properties of an entity, without keys and service metadata. */
function values({ etag, timestamp, partitionKey, rowKey, "odata.metadata": metadata, ...rest }) {
  return rest;
}

async function get(table, rowKey = "r") {
  return table.getEntity("p", rowKey);
}

async function filled() {
  const table = await newTable();
  for (let number = 0; number < 10; number += 1) {
    await table.createEntity(entity({ number, name: `n${number}` }, `0${number}`, number % 2 ? "odd" : "even"));
  }
  return table;
}

test("entities keep the types of their values", async () => {
  const table = await newTable();
  const typed = {
    text: "quote's, ünïcödé 🦀",
    whole: 42,
    large: 1n << 40n,
    real: 2.5,
    truth: true,
    bytes: new Uint8Array([0, 255]),
    when: new Date(Date.UTC(2026, 10, 21, 12, 30, 15)),
    empty: "",
  };
  await table.createEntity(entity(typed));
  const read = await get(table);
  assert.deepEqual({ ...values(read), bytes: new Uint8Array(read.bytes) }, typed);
  assert.match(read.etag, /^W\/"datetime'/);
});

test("an entity is inserted once", async () => {
  const table = await newTable();
  const answers = await race(6, (by) => outcome(() => table.createEntity(entity({ by }))));
  assert.deepEqual(answers.toSorted(), [...Array(5).fill("409 EntityAlreadyExists"), "ok"]);
  assert.equal((await get(table)).by, answers.indexOf("ok"));
});

test("replace removes and merge keeps", async () => {
  const table = await newTable();
  await table.createEntity(entity({ a: 1, b: 2 }));
  await table.updateEntity(entity({ b: 3, c: 4 }), "Merge");
  assert.deepEqual(values(await get(table)), { a: 1, b: 3, c: 4 });
  await table.updateEntity(entity({ d: 5 }), "Replace");
  assert.deepEqual(values(await get(table)), { d: 5 });
});

test("an upsert inserts or changes", async () => {
  const table = await newTable();
  await table.upsertEntity(entity({ a: 1 }), "Merge");
  await table.upsertEntity(entity({ b: 2 }), "Merge");
  assert.deepEqual(values(await get(table)), { a: 1, b: 2 });
  await table.upsertEntity(entity({ c: 3 }), "Replace");
  assert.deepEqual(values(await get(table)), { c: 3 });
});

test("updates with tags add up", async () => {
  const table = await newTable();
  await table.createEntity(entity({ count: 0 }));
  const add = async () => {
    const { count, etag } = await get(table);
    const answer = await outcome(() => table.updateEntity(entity({ count: count + 1 }), "Merge", { etag }));
    assert(["ok", UNMET].includes(answer), answer);
    return answer === "ok";
  };
  await race(4, async () => {
    for (let round = 0; round < 8; round += 1) await again(add);
  });
  assert.equal((await get(table)).count, 32);
});

test("a stale tag of an entity changes nothing", async () => {
  const table = await newTable();
  const { etag: first } = await table.createEntity(entity({ a: 1 }));
  const { etag: second } = await table.updateEntity(entity({ a: 2 }), "Merge", { etag: first });
  assert.notEqual(first, second);
  for (const late of [
    () => table.updateEntity(entity({ a: 3 }), "Merge", { etag: first }),
    () => table.updateEntity(entity({ a: 3 }), "Replace", { etag: first }),
    () => table.deleteEntity("p", "r", { etag: first }),
  ]) {
    assert.equal(await outcome(late), UNMET);
  }
  const { a, etag } = await get(table);
  assert.deepEqual([a, etag], [2, second]);
  await table.deleteEntity("p", "r", { etag });
  await refused(() => get(table), 404, "ResourceNotFound");
});

test("missing entities and tables", async () => {
  const table = await newTable();
  await refused(() => get(table, "none"), 404, "ResourceNotFound");
  await refused(() => table.updateEntity(entity({ a: 1 }, "none")), 404, "ResourceNotFound");
  await refused(() => table.deleteEntity("p", "none"), 404, "ResourceNotFound");
  const nowhere = tableClient(`nowhere${table.tableName}`);
  await refused(() => nowhere.createEntity(entity({})), 404, "TableNotFound");
});

for (const key of ["plain", "o'brien", "with space", "ünïcödé", "a+b=c&d", "100%", "(x,y)"]) {
  test(`a key like ${key}`, async () => {
    const table = await newTable();
    await table.createEntity(entity({ a: 1 }, key));
    assert.equal((await get(table, key)).a, 1);
    await table.updateEntity(entity({ a: 2 }, key));
    const found = await collected(table.listEntities({ queryOptions: { filter: odata`RowKey eq ${key}` } }));
    assert.deepEqual(found.map(({ a }) => a), [2]);
    await table.deleteEntity("p", key);
    assert.deepEqual(await collected(table.listEntities()), []);
  });
}

test("filters", async () => {
  const table = await filled();
  for (const [filter, numbers] of Object.entries({
    "PartitionKey eq 'odd'": [1, 3, 5, 7, 9],
    "PartitionKey eq 'odd' and RowKey ge '05'": [5, 7, 9],
    "number lt 3": [0, 2, 1],
    "number ge 8 or name eq 'n1'": [8, 1, 9],
    "not (number ne 4)": [4],
    "missing eq 1": [],
  })) {
    const found = await collected(table.listEntities({ queryOptions: { filter } }));
    assert.deepEqual(found.map(({ number }) => number), numbers, filter);
  }
  const [selected] = await collected(table.listEntities({ queryOptions: { filter: "number eq 3", select: ["number"] } }));
  assert.deepEqual(values(selected), { number: 3 });
});

test("results come in pages and in order", async () => {
  const table = await filled();
  const numbers = (page) => page.map(({ number }) => number);
  const pages = await collected(table.listEntities().byPage({ maxPageSize: 4 }));
  assert.deepEqual(pages.map(numbers), [[0, 2, 4, 6], [8, 1, 3, 5], [7, 9]]);
  const { continuationToken } = pages[0];
  const rest = await collected(table.listEntities().byPage({ maxPageSize: 4, continuationToken }));
  assert.deepEqual(rest.map(numbers), [[8, 1, 3, 5], [7, 9]]);
});

test("a wrong key gives no access to tables", async () => {
  const table = await newTable();
  const account = new URL(table.url).pathname.split("/")[1];
  const wrong = new AzureNamedKeyCredential(account, Buffer.from("another key").toString("base64"));
  const stranger = new TableClient(table.url, table.tableName, wrong, { allowInsecureConnection: true });
  await refused(() => stranger.createEntity(entity({})), 403, "AuthenticationFailed");
  await refused(() => collected(stranger.listEntities()), 403, "AuthenticationFailed");
  assert.deepEqual(await collected(table.listEntities()), []);
});

test("a transaction makes all changes or none", async () => {
  const table = await newTable();
  const { etag } = await table.createEntity(entity({ v: 1 }, "a"));
  const done = await table.submitTransaction([
    ["create", entity({ v: 2 }, "b")],
    ["update", entity({ v: 2 }, "a"), "Merge", { etag }],
    ["upsert", entity({ v: 2 }, "c"), "Replace"],
  ]);
  assert.equal(done.status, 202);
  assert.deepEqual(done.subResponses.map(({ status }) => status), [204, 204, 204]);
  assert.equal((await get(table, "b")).etag, done.subResponses[0].etag);
  const failing = () => table.submitTransaction([["delete", entity({}, "c")], ["update", entity({ v: 3 }, "a"), "Merge", { etag }]]);
  assert.equal(await outcome(failing), UNMET);
  assert.deepEqual((await collected(table.listEntities())).map(({ v }) => v), [2, 2, 2]);
});
