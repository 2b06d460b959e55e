// The blobs for other Workers, by a service binding with the entrypoint "Blobs". Each call is a request to this Worker's own `fetch`.
import { WorkerEntrypoint } from "cloudflare:workers";

const CONDITIONS = { ifMatch: "if-match", ifNoneMatch: "if-none-match" };
const LEASE = { leaseId: "lease-id", leaseToken: "lease-token", idempotencyKey: "idempotency-key" };
const KEPT = {
  contentType: "content-type",
  contentEncoding: "content-encoding",
  contentLanguage: "content-language",
  contentDisposition: "content-disposition",
  cacheControl: "cache-control",
};
/** Prefix of the header fields of metadata. */
const META = "x-meta-";
/** RFC 9110 §8.8.3. */
const TAGS = /^\s*(\*|(W\/)?"[\x21\x23-\x7e\x80-\xff]*"(\s*,\s*(W\/)?"[\x21\x23-\x7e\x80-\xff]*")*)\s*$/;
/** Refusals that a program expects: it reads again, waits, or gives up. All others are exceptions. */
const REFUSALS = [404, 409, 412, 428];

export class Blobs extends WorkerEntrypoint {
  async get(name, { range, ...options } = {}) {
    const headers = fields(options, CONDITIONS);
    if (range !== undefined) headers.set("range", bytes(range));
    const answer = await this.#ask("GET", name, { headers });
    return answer.ok ? { ...found(answer), body: answer.response.body } : answer;
  }

  async head(name, options = {}) {
    const answer = await this.#ask("HEAD", name, { headers: fields(options, CONDITIONS) });
    return answer.ok ? found(answer) : answer;
  }

  async put(name, content, { size, metadata = {}, ...options } = {}) {
    if (content === undefined || content === null) throw new TypeError("content is missing: pass \"\" for an empty blob");
    // fetch would send "[object Object]" for anything else.
    if (!isContent(content)) throw new TypeError("content must be a string, an ArrayBuffer, a view of one or a ReadableStream");
    const headers = fields(options, { ...CONDITIONS, ...LEASE, ...KEPT });
    for (const [name, value] of Object.entries(metadata)) headers.set(META + name, value);
    // R2 takes a stream as it is only if its length is known.
    const body = size === undefined || !(content instanceof ReadableStream) ? content : content.pipeThrough(new FixedLengthStream(size));
    const answer = await this.#ask("PUT", name, { headers, body });
    return answer.ok ? { ok: true, created: answer.response.status === 201, etag: answer.response.headers.get("etag") } : answer;
  }

  async delete(name, options = {}) {
    return done(await this.#ask("DELETE", name, { headers: fields(options, { ...CONDITIONS, ...LEASE }) }));
  }

  async acquireLease(name, { seconds, ...options } = {}) {
    const headers = fields(options, { id: "lease-id", holder: "lease-holder" });
    headers.set("lease-duration", whole(seconds, "seconds"));
    return lease(await this.#ask("POST", name, { headers, query: "?lease" }));
  }

  async renewLease(name, id) {
    return lease(await this.#ask("PUT", name, { headers: fields({ id }, { id: "lease-id" }), query: "?lease" }));
  }

  async releaseLease(name, id) {
    return done(await this.#ask("DELETE", name, { headers: fields({ id }, { id: "lease-id" }), query: "?lease" }));
  }

  async breakLease(name, seconds = 0) {
    const headers = new Headers({ "lease-break-period": whole(seconds, "seconds") });
    const answer = await this.#ask("DELETE", name, { headers, query: "?lease" });
    return answer.ok ? { ok: true, remaining: remaining(answer.response) } : answer;
  }

  /** Sends a request to this Worker, with its own token. */
  async #ask(method, name, { headers, query = "", body }) {
    // The binding is what permits the caller.
    const [token] = String(this.env.IFMATCH_WRITE_TOKEN ?? "").split(",");
    if (token) headers.set("authorization", `Bearer ${token.trim()}`);
    // "manual": the body as it is stored, in its coding.
    const init = { method, headers, body, encodeResponseBody: "manual" };
    const response = await this.ctx.exports.default.fetch(`http://localhost/${path(name)}${query}`, init);
    if (response.ok || response.status === 304) return { ok: true, response };
    return refused(response, method);
  }
}

/** Returns a refusal as a value, and throws for a failure. */
async function refused(response, method) {
  const { status, headers } = response;
  // A response to HEAD has no body.
  const problem = method === "HEAD" ? {} : await response.json().catch(() => ({}));
  const code = problem.code ?? problem.type?.split(":").at(-1) ?? String(status);
  const detail = problem.detail ?? `${method} got ${status}`;
  const retryAfter = number(headers.get("retry-after"));
  const refusal = { status, code, detail, retryAfter };
  if (REFUSALS.includes(status)) return { ok: false, ...refusal, etag: headers.get("etag") };
  const hint = status === 401 ? ". This entry point sends the first token of IFMATCH_WRITE_TOKEN, which is not set" : "";
  throw Object.assign(new Error(`${status} ${code}: ${detail}${hint}`), { name: "BlobsError" }, refusal);
}

function found({ response }) {
  const { status, headers } = response;
  const own = [...headers].filter(([name]) => name.startsWith(META)).map(([name, value]) => [name.slice(META.length), value]);
  const kept = Object.entries(KEPT).flatMap(([option, field]) => (headers.has(field) ? [[option, headers.get(field)]] : []));
  const size = status === 206 ? headers.get("content-range")?.split("/").at(-1) : headers.get("content-length");
  const date = headers.get("last-modified");
  const version = { etag: headers.get("etag"), lastModified: date === null ? null : new Date(date), size: number(size) };
  return { ok: true, notModified: status === 304, ...version, ...Object.fromEntries(kept), metadata: Object.fromEntries(own) };
}

function lease(answer) {
  if (!answer.ok) return answer;
  const { headers } = answer.response;
  return { ok: true, id: headers.get("lease-id"), token: headers.get("lease-token"), remaining: remaining(answer.response) };
}

const done = (answer) => (answer.ok ? { ok: true } : answer);
const remaining = ({ headers }) => number(headers.get("lease-remaining"));
const number = (text) => (text === null || text === undefined ? null : Number(text));

/** Returns the header fields of options. */
function fields(options, known) {
  const headers = new Headers();
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(known, name)) throw new TypeError(`${JSON.stringify(name)} isn't an option here: use ${Object.keys(known).join(", ")}`);
    // A condition that is missing by mistake would lose an update.
    if (typeof value !== "string" || value.trim() === "") throw new TypeError(`${name} must be a non-empty string: omit the option if there is none`);
    // A text without quotes names no version: the condition would always or never hold.
    if (Object.hasOwn(CONDITIONS, name) && !TAGS.test(value)) throw new TypeError(`${name} must be "*", or tags with their quotes, separated by commas`);
    headers.set(known[name], value);
  }
  return headers;
}

function isContent(content) {
  const isBytes = content instanceof ArrayBuffer || ArrayBuffer.isView(content);
  return typeof content === "string" || isBytes || content instanceof ReadableStream;
}

/** Returns the path of a blob. In a URL, some segments would name another blob. */
function path(name) {
  const segments = typeof name === "string" ? name.split("/") : [];
  if (segments.length < 2 || segments.some((segment) => ["", ".", ".."].includes(segment))) {
    throw new TypeError("a blob's name must be container/name, without empty segments, \".\" or \"..\"");
  }
  return segments.map(encodeURIComponent).join("/");
}

function bytes({ offset, length, suffix }) {
  if (suffix !== undefined) return `bytes=-${from(0, suffix, "suffix")}`;
  const first = from(0, offset ?? 0, "offset");
  return `bytes=${first}-${length === undefined ? "" : first + from(1, length, "length") - 1}`;
}

/** Checks a number of a range. HTTP has no smaller ones: the field would be ignored, and the whole blob returned. */
function from(least, value, name) {
  if (whole(value, name) < least) throw new TypeError(`${name} must be at least ${least}`);
  return value;
}

function whole(value, name) {
  if (!Number.isSafeInteger(value)) throw new TypeError(`${name} must be a whole number`);
  return value;
}
