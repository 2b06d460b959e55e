// The scenarios of the Rust client, for the TypeScript client.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Client, ClientError } from "ifmatch/client";

import { serve } from "./server.mjs";

const FILE = new URL("../../../../crates/ifmatch-client/tests/data/scenarios.txt", import.meta.url);
const lines = readFileSync(FILE, "utf8").split("\n").filter((line) => line && !line.startsWith("#"));
const rows = lines.map((line) => line.split("|").map((column) => column.trim()));

/** Runs an operation, and returns its outcome. */
async function outcome(client, server, operation) {
  const [name, number] = operation.split(" ");
  const value = number && { n: Number(number) };
  try {
    if (name === "create") return (await client.create(server.url, value)).outcome;
    if (name === "update") {
      await client.update(server.url, (document) => ({ ...document, n: (document?.n ?? 0) + 1 }));
      return "saved";
    }
    const read = await client.read(server.url);
    if (name === "read") return "read";
    if (name === "late") server.rival();
    const saved = await client.save(read, value);
    if (saved.outcome === "saved") assert.equal(saved.version.value.n, value.n);
    else {
      assert.deepEqual(saved.mine, value);
      assert.equal(saved.base.n, saved.outcome === "superseded" ? value.n : read.value.n, "base");
      assert.equal(saved.theirs.value?.n ?? null, server.number(), "theirs");
    }
    return saved.outcome;
  } catch (error) {
    if (error instanceof ClientError) return error.kind;
    throw error;
  }
}

test("the table is read", () => assert.ok(rows.length > 40 && rows.every((row) => row.length === 8), String(rows.find((row) => row.length !== 8))));

for (const [name, behaviour, before, writes, operation, expected, after, without] of rows) {
  for (const stamps of [true, false]) {
    test(`${name}, ${stamps ? "with" : "without"} stamps`, { timeout: 120_000 }, async (t) => {
      const always = writes.startsWith("always ");
      const steps = writes === "-" ? [] : writes.replace("always ", "").split(";").map((list) => list.trim().split(" "));
      const server = await serve(t, { behaviour, document: before === "-" ? null : Number(before), writes: steps, always });
      const client = new Client({ stamps, patience: always ? 2000 : 30_000 });
      const got = `${await outcome(client, server, operation)} ${after === "?" ? "?" : (server.number() ?? "-")}`;
      const differs = !stamps && without !== "-";
      const allowed = differs ? [without] : expected.split(" or ").map((outcome) => `${outcome} ${after}`);
      assert.ok(allowed.includes(got), `${got} instead of ${allowed.join(" or ")}`);
      assert.ok(always || server.state.writes.length === 0, `the client has sent all writes of the scenario: ${JSON.stringify(server.state.writes)} are left`);
    });
  }
}
