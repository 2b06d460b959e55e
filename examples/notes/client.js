// The client of the npm package in one file: `cargo xtask js` writes it.

// client/http.ts
var ClientError = class extends Error {
  constructor(kind2, message, status, options) {
    super(message, options);
    this.kind = kind2;
    this.status = status;
  }
  kind;
  status;
  name = "ClientError";
};
var ATTEMPT = 1e4;
var now = () => performance.now();
async function send(sender, { until, signal }, method, url, fields, body) {
  signal?.throwIfAborted();
  const headers = new Headers({ "accept-encoding": "identity" });
  if (method === "GET" && !globalThis.location) headers.set("cache-control", "no-cache");
  new Headers(await sender.headers(method, url)).forEach((value, name) => headers.set(name, value));
  for (const name in fields) headers.set(name, fields[name]);
  const limit = AbortSignal.timeout(Math.ceil(Math.max(0, Math.min(ATTEMPT, until - now()))));
  const init = { method, headers, signal: signal ? AbortSignal.any([signal, limit]) : limit };
  if (body) init.body = body;
  if (method !== "GET") init.redirect = "manual";
  if ("cache" in Request.prototype) init.cache = "no-store";
  try {
    const response = await sender.fetch(url, init);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const { status, headers: headers2 } = response;
    const error = failure(method, url, response, bytes);
    const is = response.ok && status !== 202 ? "done" : error.kind === "contended" ? "unknown" : error.kind;
    const retryAfter = 1e3 * (Number(headers2.get("retry-after")) || 0);
    return { is, status, headers: headers2, bytes, hidden: response.type === "cors", error, retryAfter };
  } catch (cause) {
    signal?.throwIfAborted();
    const error = new ClientError("unknown", `${method} ${url}: there was no response (${cause})`, void 0, { cause });
    return { is: "unknown", status: 0, headers: new Headers(), bytes: new Uint8Array(), hidden: false, error, retryAfter: 0 };
  }
}
function failure(method, url, { status, headers, type }, bytes) {
  let detail = headers.get("x-ms-error-code") ?? "";
  const code = detail;
  try {
    detail = JSON.parse(decode(bytes)).detail ?? detail;
  } catch {
  }
  if (type === "opaqueredirect" || status >= 300 && status < 400) detail = "the server redirects writes: use the URL that it redirects to";
  if (status === 428 && !detail) detail = "the condition hasn't reached the server: does something in between remove If-Match?";
  return new ClientError(kind(status, code), `${method} ${url}: ${status}${detail && ` (${detail})`}`, status);
}
function kind(status, code) {
  if (status === 412 && code === "LeaseTokenSuperseded") return "lost";
  if (status === 412 && code.startsWith("Lease") || code === "ContainerNotFound") return "refused";
  if ([404, 409, 410, 412].includes(status)) return "conflict";
  if ([408, 425, 429].includes(status)) return "unknown";
  if ([501, 507].includes(status)) return "refused";
  return status >= 500 || status >= 200 && status < 300 ? "unknown" : "refused";
}
function strongTag(headers) {
  const tag = headers.get("etag");
  return tag !== null && /^"[\x21\x23-\x7e\x80-\xff]*"$/.test(tag) ? tag : void 0;
}
var encode = (text2) => new TextEncoder().encode(text2);
var decode = (bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes);
function random() {
  return Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
var Pace = class {
  constructor(until, signal) {
    this.until = until;
    this.signal = signal;
  }
  until;
  signal;
  #pause = 10;
  /** Waits for the next pause, and at least for a time. Returns `false` if the time is over. */
  async next(atLeast = 0) {
    const pause = this.#pause * (0.5 + Math.random() / 2);
    this.#pause = Math.min(1e3, 2 * this.#pause);
    return this.sleep(Math.max(pause, Math.min(atLeast, (this.until - now()) / 2)));
  }
  /** Waits. Returns `false` if the time would then be over. */
  async sleep(time) {
    if (now() + time >= this.until) return false;
    await sleep(time, this.signal);
    return now() < this.until;
  }
};
function sleep(time, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, time);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
  });
}

// client/stamp.ts
var STAMP = "$ifmatch";
var RECENT = 32;
function next(previous, id, fence) {
  const { chain, writes, recent, fence: largest } = previous ?? { chain: id, writes: 0, recent: [] };
  const stamp = { chain, writes: writes + 1, recent: [...recent, id].slice(-RECENT) };
  if (fence !== void 0 || largest !== void 0) stamp.fence = Math.max(fence ?? 0, largest ?? 0);
  return stamp;
}
function fate(ours, current, creates) {
  if (!current) return "untold";
  const id = ours.recent.at(-1);
  if (current.recent.at(-1) === id) return "current";
  if (current.recent.includes(id)) return "superseded";
  const later = current.writes - ours.writes;
  const namesRival = later >= 0 && later < current.recent.length;
  const sameChain = current.chain === ours.chain;
  return sameChain && namesRival || creates && !sameChain ? "not done" : "untold";
}
function attach(json2, stamp) {
  const value = JSON.parse(json2);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject && STAMP in value) throw new TypeError(`the member ${STAMP} is reserved`);
  const document = isObject ? { ...value, [STAMP]: stamp } : { value, [STAMP]: { ...stamp, wrapped: true } };
  return encode(JSON.stringify(document));
}
function detach(url, bytes) {
  const value = parse(url, bytes);
  if (typeof value !== "object" || value === null || !(STAMP in value)) return { bytes };
  const { [STAMP]: found, ...rest } = value;
  const stamp = found;
  if (!Array.isArray(stamp?.recent) || typeof stamp.chain !== "string" || typeof stamp.writes !== "number") {
    throw new ClientError("refused", `${url}: the member ${STAMP} isn't a stamp`);
  }
  return { bytes: encode(JSON.stringify(stamp.wrapped ? rest.value ?? null : rest)), stamp };
}
function parse(url, bytes) {
  try {
    return JSON.parse(decode(bytes));
  } catch (cause) {
    throw new ClientError("refused", `${url}: the document isn't JSON`, void 0, { cause });
  }
}

// client/lock.ts
var RELEASE = 1e4;
var ANSWER = 1e4;
var AGAIN = 1e3;
async function lock(store, url, work, options) {
  const { ttl = 3e4, wait = Infinity, holder = "", signal } = options;
  if (!(ttl >= 3e3)) throw new RangeError("a lock's ttl is at least 3000 milliseconds");
  const grant = await acquire(store, url, { ttl, until: now() + wait, holder, signal });
  const lost = new Promise((_, reject) => grant.signal.addEventListener("abort", () => reject(gone(url)), { once: true }));
  lost.catch(() => {
  });
  try {
    signal?.throwIfAborted();
    const done = await Promise.race([work(grant), lost]);
    if (grant.lost) throw gone(url);
    return done;
  } finally {
    await grant.release();
  }
}
var gone = (url) => new ClientError("lost", `${url}: the lock is lost, or a later holder has written: its work must not continue`);
async function acquire(store, url, { ttl, until, holder, signal }) {
  let seen;
  for (; ; ) {
    let raw;
    try {
      raw = await store.read(url, new Pace(now() + ANSWER, signal));
    } catch (error) {
      if (!isUnknown(error) || now() >= until) throw error;
      await sleep(AGAIN, signal);
      continue;
    }
    const at = now();
    const previous = raw && record(url, raw);
    if (raw && seen?.etag !== raw.etag) seen = { etag: raw.etag, since: at };
    const end = previous?.held ? seen.since + previous.ttl_ms : at;
    if (end <= at) {
      const taken = { holder, fence: previous ? previous.fence + 1 : Date.now() * 1e3, ttl_ms: ttl, held: true };
      const sent = instant();
      try {
        const written = await put(store, url, raw, taken, now() + ttl - margin(ttl));
        if (written.is === "done") return new Grant(store, url, written.now, taken, sent);
      } catch (error) {
        if (!isUnknown(error) || now() >= until) throw error;
      }
      continue;
    }
    if (at >= until) throw new ClientError("contended", `${url}: ${previous?.holder || "another client"} holds the lock`);
    const interval = Math.min(1e3, Math.max(100, ttl / 10)) * (0.5 + Math.random() / 2);
    await sleep(Math.min(interval, end - at, until - at), signal);
  }
}
var Grant = class {
  constructor(store, url, raw, lock2, sent) {
    this.store = store;
    this.url = url;
    this.raw = raw;
    this.lock = lock2;
    this.sent = sent;
    this.#keeper = this.#keep();
  }
  store;
  url;
  raw;
  lock;
  sent;
  #lost = new AbortController();
  #stop = new AbortController();
  #keeper;
  get fence() {
    return this.lock.fence;
  }
  get signal() {
    return this.#lost.signal;
  }
  get lost() {
    return this.#lost.signal.aborted || this.#remaining() <= 0;
  }
  /** Counts from before the last successful renewal was sent, on whichever clock has run further. */
  #remaining() {
    return this.lock.ttl_ms - margin(this.lock.ttl_ms) - since(this.sent);
  }
  async #keep() {
    try {
      for (; ; ) {
        await sleep(Math.max(0, this.lock.ttl_ms / 3 - since(this.sent)), this.#stop.signal);
        if (!await this.#renew()) return this.#lost.abort(gone(this.url));
      }
    } catch {
    }
  }
  /** Writes the record again. Only a definite answer or the deadline ends the attempts. */
  async #renew() {
    const pace = new Pace(now() + this.#remaining());
    for (; ; ) {
      const sent = instant();
      try {
        const written = await put(this.store, this.url, this.raw, this.lock, now() + this.#remaining());
        if (written.is !== "done") return false;
        this.raw = written.now;
        this.sent = sent;
        return true;
      } catch (error) {
        if (isUnknown(error) || !await pace.next()) return false;
      }
    }
  }
  /** Ends the work's right first. If the lock is lost, the work may still run: it then ends by its time to live. */
  async release() {
    const isLost = this.lost;
    this.#stop.abort();
    await this.#keeper;
    if (isLost || this.#lost.signal.aborted) return this.#lost.abort(gone(this.url));
    this.#lost.abort(gone(this.url));
    await put(this.store, this.url, this.raw, { ...this.lock, held: false }, now() + RELEASE).catch(() => {
    });
  }
};
function put(store, url, base, lock2, until) {
  const id = random();
  const stamp = next(base ? detach(url, base.bytes).stamp : void 0, id);
  const bytes = attach(JSON.stringify(lock2), stamp);
  const fields = { "content-type": TYPE, "idempotency-key": id };
  return store.write(url, base, { method: "PUT", type: TYPE, fields, bytes, stamp }, new Pace(until));
}
var TYPE = "application/json";
function record(url, raw) {
  const lock2 = JSON.parse(decode(detach(url, raw.bytes).bytes));
  if (!Number.isSafeInteger(lock2?.fence) || typeof lock2.ttl_ms !== "number" || typeof lock2.held !== "boolean") {
    throw new ClientError("refused", `${url}: the document isn't a lock's`);
  }
  return lock2;
}
var isUnknown = (error) => error instanceof ClientError && error.kind === "unknown";
var margin = (ttl) => Math.max(1e3, ttl / 10);
var instant = () => ({ clock: now(), day: Date.now() });
var since = ({ clock, day }) => Math.max(now() - clock, Date.now() - day);

// client/store.ts
var LOOKS = 12;
var LOOK = 250;
var RESENDS = 3;
var PROBES = 5;
var Store = class {
  constructor(sender, copies, probes) {
    this.sender = sender;
    this.copies = copies;
    this.probes = probes;
  }
  sender;
  copies;
  probes;
  #copies = /* @__PURE__ */ new Map();
  #proven = /* @__PURE__ */ new Set();
  copy(url) {
    return this.#copies.get(url);
  }
  #keep(url, raw) {
    this.#copies.delete(url);
    if (raw) this.#copies.set(url, raw);
    if (this.#copies.size > this.copies) this.#copies.delete(this.#copies.keys().next().value);
    return raw;
  }
  /** Reads the current version, or `null` if there is none. Tries again without a response, until the time is over. */
  async read(url, pace) {
    for (; ; ) {
      const answer = await this.#look(url, pace);
      if ("etag" in answer) return answer.raw;
      if (answer.is !== "unknown" || !await pace.next(answer.retryAfter)) throw answer.error;
    }
  }
  /** Makes one attempt to read. Looks again for a few seconds if the tag is weak. */
  async #look(url, pace) {
    const known = this.#copies.get(url);
    for (let looks = 0; ; looks += 1) {
      const answer = await send(this.sender, pace, "GET", url, known ? { "if-none-match": known.etag } : {});
      if (answer.status === 304 && known) return { etag: true, raw: known };
      if (answer.status === 404 || answer.status === 410) return { etag: true, raw: this.#keep(url, null) };
      if (answer.status !== 200) return answer;
      const etag = strongTag(answer.headers);
      if (etag) return { etag: true, raw: this.#keep(url, { etag, bytes: answer.bytes }) };
      const weak = answer.headers.get("etag");
      if (!weak || looks === LOOKS || !await pace.sleep(LOOK)) return { ...answer, is: "refused", error: noTag(url, weak, answer) };
    }
  }
  /** Reads once. Returns `undefined` if that fails. */
  async #glance(url, pace) {
    const answer = await this.#look(url, pace);
    return "etag" in answer ? answer.raw : void 0;
  }
  /**
   * Replaces the version `base`, or creates the document. Sends the same request again while its outcome is unknown.
   *
   * The first write below a folder makes sure that the server honours conditions: before it replaces a document, or after it has
   * created one. What is there already isn't written to create it: a server that ignores conditions would overwrite it.
   */
  async write(url, base, change, pace) {
    if (base && !await this.#prove(url, base, change.type, pace)) return { is: "conflict", now: null };
    if (!base && this.probes && !this.#proven.has(folderOf(url))) {
      const found = await this.read(url, pace);
      if (found) return { is: "conflict", now: found };
    }
    const written = await this.#attempt(url, base, change, pace);
    if (base || written.is !== "done" || !written.now) return written;
    try {
      return await this.#prove(url, written.now, change.type, pace) ? written : { is: "superseded", now: null };
    } catch (error) {
      if (!(error instanceof ClientError) || error.kind !== "refused") throw error;
      const removed = await send(this.sender, pace, "DELETE", url, { "if-match": written.now.etag });
      this.#keep(url, null);
      throw removed.is === "done" ? error : new ClientError("refused", `${error.message}. What was created is left.`);
    }
  }
  async #attempt(url, base, change, pace) {
    const { method, bytes, stamp } = change;
    const fields = { ...change.fields, ...base ? { "if-match": base.etag } : { "if-none-match": "*" } };
    const again = new Pace(pace.until, pace.signal);
    let doubt;
    for (let resends = 0; ; ) {
      const answer = await send(this.sender, pace, method, url, fields, bytes);
      if (answer.is === "done") {
        if (method === "DELETE") return { is: "done", now: this.#keep(url, null) };
        const etag = strongTag(answer.headers);
        this.#keep(url, null);
        if (etag) return { is: "done", now: { etag, bytes } };
        const found2 = await this.read(url, pace);
        return { is: found2 && same(found2.bytes, bytes) ? "done" : "superseded", now: found2 };
      }
      if (answer.is === "conflict") {
        if (!doubt) await pace.next();
        const found2 = await this.#afterwards(url, pace, doubt ?? answer.error);
        if (base && found2?.etag === base.etag && await pace.next()) continue;
        return this.#settle(url, base, stamp, found2, doubt) ?? { is: doubt ? "unknown" : "conflict", now: found2, error: doubt ?? answer.error };
      }
      if (answer.is !== "unknown" && !doubt) throw answer.error;
      doubt ??= answer.error;
      const found = await this.#glance(url, pace);
      if (found !== void 0) {
        const settled = this.#settle(url, base, stamp, found, doubt);
        if (settled) return settled;
      }
      resends += found === void 0 ? RESENDS : 1;
      const waited = resends < RESENDS && !answer.retryAfter ? await pace.sleep(0) : await again.next(answer.retryAfter);
      if (!waited) throw doubt;
    }
  }
  /** Reads after a conflict. */
  async #afterwards(url, pace, error) {
    try {
      return await this.read(url, pace);
    } catch (cause) {
      pace.signal?.throwIfAborted();
      throw new ClientError(error.kind, `${error.message}; what is there now couldn't be read`, error.status, { cause });
    }
  }
  /** Returns the outcome of a write, given the document after it, or `undefined` if that doesn't tell: the request may be sent again. */
  #settle(url, base, stamp, found, doubt) {
    const told = stamp && fate(stamp, found ? detach(url, found.bytes).stamp : void 0, !base);
    if (told === "current") return { is: "done", now: found };
    if (told === "superseded") return { is: "superseded", now: found };
    if (told === "not done") return { is: "conflict", now: found };
    if (doubt && !stamp && found?.etag !== base?.etag) return { is: "unknown", now: found, error: doubt };
    return void 0;
  }
  /** Makes sure that the server honours conditions on writes. Returns `false` if the document has been deleted. */
  async #prove(url, { etag, bytes }, type, pace) {
    const folder = folderOf(url);
    if (!this.probes || this.#proven.has(folder)) return true;
    await this.#rejects(url, "If-Match", { "content-type": type, "if-match": `"${random()}"` }, bytes, pace);
    for (let probes = 0; probes < PROBES; probes += 1) {
      const told = await this.#rejects(url, "If-None-Match: *", { "content-type": type, "if-match": etag, "if-none-match": "*" }, bytes, pace);
      if (told === etag) break;
      const found = await this.read(url, pace);
      if (!found) return false;
      if (found.etag === etag) break;
      ({ etag, bytes } = found);
    }
    this.#proven.add(folder);
    return true;
  }
  /** Sends a write that must be rejected, since its condition is false. Returns the current tag, if the server tells it. */
  async #rejects(url, condition, fields, bytes, pace) {
    for (; ; ) {
      const answer = await send(this.sender, pace, "PUT", url, fields, bytes);
      if (answer.is === "done") {
        const why = "it accepted a write although the condition is false, so clients would overwrite each other's changes";
        throw new ClientError("refused", `${url}: the server ignores ${condition}: ${why}. Use a server that honours conditions`, answer.status);
      }
      if (answer.is !== "unknown") return strongTag(answer.headers);
      if (!await pace.next(answer.retryAfter)) throw answer.error;
    }
  }
};
function noTag(url, weak, { hidden }) {
  const why = weak ? `the ETag ${weak} is weak, which never satisfies If-Match. If something in between compresses, send the document with Cache-Control: no-transform` : hidden ? "this page can't read an ETag: the server must send one, and Access-Control-Expose-Headers: ETag" : "the server names no ETag, so a write could overwrite another client's";
  return new ClientError("refused", `${url}: ${why}`, 200);
}
function folderOf(url) {
  return new URL(".", url).href;
}
function same(a, b) {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

// client/client.ts
function json(check = (value) => value) {
  return {
    type: "application/json",
    encode(value) {
      const encoded = JSON.stringify(value);
      if (encoded === void 0) throw new TypeError("the value can't be JSON");
      return encoded;
    },
    decode: (bytes) => check(JSON.parse(decode(bytes)))
  };
}
var text = { type: "text/plain; charset=utf-8", encode: (value) => value, decode };
var Client = class {
  #store;
  #stamps;
  #patience;
  /** The bytes of the versions that were returned: programs change values in place. */
  #bases = /* @__PURE__ */ new WeakMap();
  /** Updates of one document from here take turns instead of conflicting. */
  #turns = /* @__PURE__ */ new Map();
  constructor({ headers, fetch, patience = 3e4, stamps = false, probe = true, copies = 100 } = {}) {
    const sender = {
      fetch: fetch ?? ((url, init) => globalThis.fetch(url, init)),
      headers: typeof headers === "function" ? headers : () => headers
    };
    this.#store = new Store(sender, copies, probe);
    this.#stamps = stamps;
    this.#patience = patience;
  }
  /** Reads the current version. The content is transferred only if it has changed. */
  async read(url, options = {}) {
    const at = absolute(url);
    return this.#version(at, await this.#store.read(at, this.#pace(options)), options);
  }
  /** Replaces the version that was read, and no other. Creates the document if there was none. */
  async save(version, mine, options = {}) {
    const pace = this.#pace(options);
    const at = absolute(version.url);
    const base = await this.#base(at, version, pace);
    if (base && base.etag !== version.etag) {
      return { outcome: "conflict", base: version.value, theirs: this.#version(at, base, options), mine };
    }
    if (!base && version.etag !== null) return { outcome: "conflict", base: version.value, theirs: none(at), mine };
    return this.#saved(at, base, await this.#write(at, base, mine, options, pace), mine, options);
  }
  /** Creates the document, if there is none. */
  async create(url, mine, options = {}) {
    return this.save(none(absolute(url)), mine, options);
  }
  /** Removes the version that was read, and no other. */
  async remove(version, options = {}) {
    const pace = this.#pace(options);
    const at = absolute(version.url);
    const base = await this.#base(at, version, pace);
    const unsaved = (outcome, raw) => {
      const value = base?.etag === version.etag ? this.#version(at, base, options).value : version.value;
      return { outcome, base: value, theirs: this.#version(at, raw, options), mine: void 0 };
    };
    if (!base || base.etag !== version.etag) return unsaved("conflict", base);
    const fields = this.#fence(at, base, options.held);
    const { type } = options.codec ?? json();
    const written = await this.#store.write(at, base, { method: "DELETE", type, fields }, pace);
    return written.is === "done" ? { outcome: "removed" } : unsaved(written.is, written.now);
  }
  /**
   * Reads the document, changes it, and saves it. If someone else was first, it tries again on the current value: `change` must
   * have no other effect. `change` gets a copy of the value, or `undefined` if there is no document, and returns the new value, or
   * `undefined` to leave the document as it is. Returns the document afterwards.
   */
  async update(url, change, options = {}) {
    const at = absolute(url);
    const pace = this.#pace(options);
    return this.#inTurn(at, pace, async () => {
      let base = await this.#store.read(at, pace);
      for (; ; ) {
        const mine = await change(this.#version(at, base, options).value);
        if (mine === void 0) return this.#version(at, base, options);
        const written = await this.#write(at, base, mine, options, pace).catch((error) => {
          throw error instanceof ClientError && error.kind === "conflict" && now() >= pace.until ? contended(at) : error;
        });
        if (written.is === "unknown") throw written.error;
        if (written.is !== "conflict") return this.#version(at, written.now, options);
        if (now() >= pace.until) throw contended(at);
        base = written.now;
      }
    });
  }
  /**
   * Acquires a lock, does the work, and releases the lock. Renews it three times per time to live. Rejects with kind `lost` if it
   * is lost before the work ends, and `contended` if others hold it for longer than `wait`.
   */
  async lock(url, work, options = {}) {
    return lock(this.#store, absolute(url), work, options);
  }
  #pace({ signal }) {
    return new Pace(now() + this.#patience, signal);
  }
  /** Returns the bytes of a version, as they were read, or the current version if this client doesn't have them. */
  async #base(url, version, pace) {
    if (version.etag === null) return null;
    const known = [this.#bases.get(version), this.#store.copy(url)];
    return known.find((raw) => raw?.etag === version.etag) ?? this.#store.read(url, pace);
  }
  async #write(url, base, mine, options, pace) {
    const codec = options.codec ?? json();
    const encoded = codec.encode(mine);
    const fields = { "content-type": codec.type, ...this.#fence(url, base, options.held) };
    const change = { method: "PUT", type: codec.type, fields };
    if (this.#stamps) {
      const id = random();
      fields["idempotency-key"] = id;
      change.stamp = next(this.#parts(url, base).stamp, id, options.held?.fence);
      change.bytes = attach(typeof encoded === "string" ? encoded : decode(encoded), change.stamp);
    } else {
      change.bytes = typeof encoded === "string" ? encode(encoded) : new Uint8Array(encoded);
    }
    return this.#store.write(url, base, change, pace);
  }
  /** Returns the header field of a holder who may still write. */
  #fence(url, base, held) {
    if (!held) return {};
    if (!this.#stamps) throw new TypeError("only a client with the option `stamps` keeps fencing tokens with the documents");
    if (held.lost || (this.#parts(url, base).stamp?.fence ?? 0) > held.fence) throw gone(url);
    return { "lease-token": String(held.fence) };
  }
  #parts(url, raw) {
    if (!raw) return {};
    return this.#stamps ? detach(url, raw.bytes) : { bytes: raw.bytes };
  }
  #version(url, raw, { codec = json() }) {
    if (!raw) return none(url);
    const bytes = this.#parts(url, raw).bytes;
    try {
      const version = { url, etag: raw.etag, value: codec.decode(bytes) };
      this.#bases.set(version, raw);
      return version;
    } catch (cause) {
      throw new ClientError("refused", `${url}: the document isn't of the expected type (${cause})`, void 0, { cause });
    }
  }
  #saved(url, base, written, mine, options) {
    const version = this.#version(url, written.now, options);
    if (written.is === "done" && version.etag !== null) return { outcome: "saved", version };
    const outcome = written.is === "done" ? "superseded" : written.is;
    return { outcome, base: outcome === "superseded" ? mine : this.#version(url, base, options).value, theirs: version, mine };
  }
  async #inTurn(url, pace, work) {
    const before = this.#turns.get(url);
    let end;
    const turn = new Promise((resolve) => end = resolve);
    this.#turns.set(url, turn);
    const limit = new AbortController();
    try {
      if (before) await Promise.race([before, sleep(this.#patience, AbortSignal.any([limit.signal, ...pace.signal ? [pace.signal] : []]))]);
      limit.abort();
      if (now() >= pace.until) throw contended(url);
      return await work();
    } finally {
      end();
      if (this.#turns.get(url) === turn) this.#turns.delete(url);
    }
  }
};
var contended = (url) => new ClientError("contended", `${url}: others were first until the time was over`);
var none = (url) => ({ url, etag: null, value: void 0 });
var absolute = (url) => new URL(url, globalThis.location?.href).href;
export {
  Client,
  ClientError,
  json,
  text
};
