// The decisions of fetch.js and hono.js: one before the handler, one after it.
import { contentTag, evaluatePreconditions, hasWriteCondition, isRetainedBy304 } from "ifmatch";

const READS = ["GET", "HEAD"];
// They have no conditions (RFC 9110 §13.2.1).
const UNCONDITIONAL = ["OPTIONS", "TRACE"];
// A POST without a condition creates something else than what it addresses.
const NEED_CONDITIONS = ["PUT", "PATCH", "DELETE"];
// Time in milliseconds for a body of unknown length to end.
const PATIENCE = 20;
const OPTIONS = ["current", "required", "maxLength"];

/** Checks the options once, so that a misspelt one isn't silently ignored. */
export function checked(options, known = OPTIONS) {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown) throw new TypeError(`${JSON.stringify(unknown)} isn't an option: use ${known.join(", ")}`);
  const { current, required = false, maxLength = 1 << 20 } = options;
  if (current !== undefined && typeof current !== "function") throw new TypeError("current must be a function that returns the current version, or null");
  if (typeof maxLength !== "number" || !(maxLength >= 0)) throw new TypeError("maxLength must be a number of bytes");
  if (required && !current) throw new TypeError("required needs current, a function that returns the current version");
  return { current, required, maxLength };
}

/** Decides whether a write runs, and which version it replaces. `load` returns the current version. */
export async function before(request, { current, required }, load) {
  if (READS.includes(request.method) || UNCONDITIONAL.includes(request.method)) return {};
  if (!hasWriteCondition(request)) {
    if (!required || !NEED_CONDITIONS.includes(request.method)) return {};
    return { refusal: problem(428, "precondition-required", "writes to this resource need a condition: send If-Match with its ETag, or If-None-Match: * to create it") };
  }
  // To ignore the condition would lose an update.
  if (!current) return { refusal: problem(501, "unsupported-condition", "this resource can't evaluate the condition of a write: pass the option current") };
  const replaces = validators(await load());
  const { outcome } = evaluatePreconditions(request, replaces);
  return outcome === "proceed" ? { replaces } : { refusal: preconditionFailed(replaces) };
}

/** Adds a tag to the response to a read, and replaces it by 304 or 412 if the request's conditions say so. */
export async function after(request, response, { maxLength }) {
  if (!READS.includes(request.method) || !response.ok) return response;
  const tagged = await withTag(response, request.method, maxLength);
  const { headers } = tagged;
  const etag = tag(headers.get("etag"));
  // A tag that is not known is not another one.
  if (etag === null && request.headers.has("if-match")) return tagged;
  const found = validators({ etag, lastModified: date(headers.get("last-modified")) });
  const { outcome } = evaluatePreconditions(request, found);
  if (outcome === "proceed") return tagged;
  await tagged.body?.cancel();
  if (outcome === "failed") return preconditionFailed(found);
  const retained = [...headers].filter(([name]) => isRetainedBy304(name, headers));
  return new Response(null, { status: 304, headers: retained });
}

/** Returns the response for a write that a condition forbids, or that lost a race for the version it replaces. */
export function preconditionFailed(current) {
  const { etag } = validators(current) ?? {};
  const headers = typeof etag === "string" ? { etag } : {};
  return problem(412, "precondition-failed", "the resource no longer has the version that the request names: read it again, and repeat the change", headers);
}

function validators(current) {
  if (current === undefined || current === null) return null;
  return typeof current === "string" ? { etag: current } : current;
}

/** A malformed tag names no version. */
function tag(text) {
  return text !== null && /^(W\/)?"[\x21\x23-\x7e\x80-\xff]*"$/.test(text) ? text : null;
}

/** An invalid date names no version. */
function date(text) {
  const at = new Date(text);
  return text !== null && !Number.isNaN(at.getTime()) && at.getUTCFullYear() < 10_000 && at.toUTCString() === text ? text : null;
}

async function withTag(response, method, maxLength) {
  const { status, headers, body } = response;
  const isWhole = status === 200 && !headers.has("content-range");
  // A coded body's bytes belong to one coding only, and a stream of events hardly ever ends.
  const isPlain = !headers.has("content-encoding") && !headers.get("content-type")?.startsWith("text/event-stream");
  // A HEAD without a body says nothing about the bytes.
  const isKnown = body !== null || method === "GET";
  if (headers.has("etag") || !isWhole || !isPlain || !isKnown || Number(headers.get("content-length")) > maxLength) return response;
  // The length of a response that a handler streams is unknown, and its client waits for the first part, not for the last.
  const read = await upTo(maxLength, body, headers.has("content-length") ? Infinity : PATIENCE);
  const tagged = new Response(read.body, response);
  if (read.bytes) tagged.headers.set("etag", contentTag(read.bytes));
  return tagged;
}

/**
 * Reads a body. Beyond `most` bytes, or if it has not ended after some milliseconds, returns it as a stream that begins with what was
 * read.
 */
async function upTo(most, body, patience) {
  const reader = body?.getReader();
  const [chunks, late] = [[], {}];
  let [length, timer] = [0, undefined];
  const deadline = patience === Infinity ? [] : [new Promise((resolve) => { timer = setTimeout(resolve, patience, late); })];
  try {
    for (let reading = reader?.read(); reading; reading = reader.read()) {
      const next = await Promise.race([reading, ...deadline]);
      if (next === late) return { body: rest(chunks, reader, reading) };
      if (next.done) break;
      const chunk = bytesOf(next.value);
      chunks.push(chunk);
      length += chunk.byteLength;
      if (length > most) return { body: rest(chunks, reader) };
    }
  } finally {
    clearTimeout(timer);
  }
  const bytes = new Uint8Array(length);
  chunks.reduce((at, chunk) => (bytes.set(chunk, at), at + chunk.byteLength), 0);
  return { bytes, body: body && bytes };
}

/** Cloudflare takes text, buffers and all views of them as parts of a body. */
function bytesOf(chunk) {
  if (typeof chunk === "string") return new TextEncoder().encode(chunk);
  if (ArrayBuffer.isView(chunk)) return new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  if (chunk instanceof ArrayBuffer) return new Uint8Array(chunk);
  throw new TypeError("a part of a body is text, an ArrayBuffer, or a view of one");
}

/** The chunks that were read, and those that are still to come, of which one may be asked for already. */
function rest(chunks, reader, reading) {
  return new ReadableStream({
    async pull(controller) {
      if (chunks.length) return controller.enqueue(chunks.shift());
      const { done, value } = await (reading ?? reader.read());
      reading = undefined;
      if (done) controller.close();
      else controller.enqueue(bytesOf(value));
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

function problem(status, name, detail, headers = {}) {
  const body = JSON.stringify({ type: `urn:ifmatch:problem:${name}`, status, detail });
  return new Response(body, { status, headers: { ...headers, "content-type": "application/problem+json" } });
}
