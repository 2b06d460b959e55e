// Helpers: the list of cases, clients, outcomes, races, waiting.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { subscribe } from "node:diagnostics_channel";
import { globalAgent } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import { BlobServiceClient } from "@azure/storage-blob";

const DEVELOPMENT = "UseDevelopmentStorage=true";

// Far longer than any lease in the suite, even on a busy machine.
const PATIENCE = 600_000;

/** All cases by title. */
export const cases = new Map();

/** Registers a case; `waits` marks cases that wait for a lease to expire. */
export function test(title, body, { waits = false } = {}) {
  assert(!cases.has(title), `two cases have the same name: ${title}`);
  cases.set(title, { body, waits });
}

// For a server that closes idle connections early, open a new one each time. Without keep-alive, the clients use
// Node's own agent, which keeps connections by default.
const enable = process.env.IFMATCH_SDK_KEEP_ALIVE !== "off";
globalAgent.keepAlive = enable;
const policy = {
  name: "connections",
  sendRequest(request, next) {
    request.disableKeepAlive = !enable;
    return next(request);
  },
};

// One retry, since the server may close an idle connection at any time. Server errors are counted below.
export const blobs = BlobServiceClient.fromConnectionString(process.env.IFMATCH_SDK_BLOB ?? DEVELOPMENT, {
  retryOptions: { maxTries: 2, retryDelayInMs: 10 },
  keepAliveOptions: { enable },
});

/** Server errors, which a retry could hide. 501 is not one: it marks a missing feature. */
export const serverErrors = [];
subscribe("http.client.response.finish", ({ request, response }) => {
  if (response.statusCode >= 500 && response.statusCode !== 501) serverErrors.push(`${response.statusCode}: ${request.method} ${request.path}`);
});

export async function newContainer() {
  const container = blobs.getContainerClient(`javascript-${randomUUID()}`);
  await container.create();
  return container;
}

/** Creates a blob. */
export async function newBlob(container) {
  const blob = (container ?? (await newContainer())).getBlockBlobClient("blob");
  await put(blob, "first");
  return blob;
}

export function tableClient(name) {
  return TableClient.fromConnectionString(process.env.IFMATCH_SDK_TABLE ?? DEVELOPMENT, name, {
    allowInsecureConnection: true,
    retryOptions: { maxRetries: 1, retryDelayInMs: 10 },
    additionalPolicies: [{ policy, position: "perCall" }],
  });
}

export async function newTable() {
  const table = tableClient(`javascript${randomUUID().replaceAll("-", "")}`);
  await table.createTable();
  return table;
}

/** Writes text or bytes. */
export function put(blob, content, options) {
  return blob.upload(content, Buffer.byteLength(content), options);
}

export async function text(blob, options) {
  return (await blob.downloadToBuffer(0, undefined, options)).toString();
}

/** Returns `ok`, or the status and the error code. */
export async function outcome(call) {
  try {
    await call();
    return "ok";
  } catch (error) {
    if (!error.statusCode) throw error;
    return `${error.statusCode} ${error.response?.headers.get("x-ms-error-code") ?? error.code}`;
  }
}

/** Checks that the call fails with this status and, if given, this code. */
export async function refused(call, status, code) {
  const answer = await outcome(call);
  assert(code ? answer === `${status} ${code}` : answer.startsWith(`${status} `), `${answer} instead of ${status} ${code ?? "with any code"}`);
}

/** Runs `work(number)` `count` times concurrently and returns the results by number. */
export function race(count, work) {
  return Promise.all(Array.from({ length: count }, (_, number) => work(number)));
}

/** Repeats `attempt` with increasing pauses until it returns something. */
export async function again(attempt, wait = 10) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const result = await attempt();
    if (result) return result;
    assert(Date.now() < deadline, "waited in vain");
    await pause(wait * (0.5 + Math.random()));
    wait = Math.min(wait * 1.5, 500);
  }
}

/** Collects an asynchronous iteration into a list. */
export async function collected(iteration) {
  const all = [];
  const deadline = Date.now() + PATIENCE;
  for await (const item of iteration) {
    assert(Date.now() < deadline, "waited in vain for the end of a listing");
    all.push(item);
  }
  return all;
}
