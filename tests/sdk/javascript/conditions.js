// Conditional headers on every operation that supports them: ../cases/conditions.txt.

import assert from "node:assert/strict";
import { check, newBlob, newContainer, rows, test, text } from "./cases.js";
import { conditions, operations, stage } from "./operations.js";

for (const row of rows("conditions.txt")) {
  for (const operation of row.operations.split(",")) {
    test(`condition: ${operation} ${row.conditions}`, () => run(operation, row));
  }
}

async function run(operation, row) {
  const { client, known, exists } = await target(operation);
  const name = operation.replace("absent-", "");
  if (name === "blocklist") await stage(client);
  await check(() => operations[name](client, conditions(row.conditions, known)), row);
  if (row.status === "ok" || !exists) return;
  const after = await client.getProperties();
  assert.equal(after.etag, known.etag, "a refused operation changed the tag");
  if (!name.startsWith("container-")) assert.equal(await text(client), "first");
}

/** Returns the operation's target and its properties. */
async function target(operation) {
  const container = await newContainer();
  if (operation.startsWith("absent-")) {
    return { client: container.getBlockBlobClient("blob"), known: { lastModified: new Date() }, exists: false };
  }
  const client = operation.startsWith("container-") ? container : await newBlob(container);
  return { client, known: await client.getProperties(), exists: true };
}
