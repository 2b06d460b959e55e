// Documents over HTTP that several people change: read, save what was read, create, remove, update, lock. It overwrites nothing that
// someone else has saved, by conditions alone (RFC 9110 §13). Any server that honours them will do.
import { ClientError, decode, encode, now, Pace, random, sleep, type Bytes, type Kind, type Sender } from "./http.js";
import { gone, lock, type Held, type LockOptions } from "./lock.js";
import { attach, detach, next } from "./stamp.js";
import { Store, type Change, type Raw, type Written } from "./store.js";

export { ClientError, type Held, type Kind, type LockOptions };

/** A document at one version, or its absence. Plain data: it can be stored, and saved later. */
export type Version<T> = Found<T> | Absent;

export interface Found<T> {
  url: string;
  /** The strong tag. */
  etag: string;
  value: T;
}

export interface Absent {
  url: string;
  etag: null;
  value: undefined;
}

/** The outcome of a save. */
export type Saved<T> = { outcome: "saved"; version: Found<T> } | Unsaved<T>;

/** The outcome of a removal. */
export type Removed<T> = { outcome: "removed" } | Unsaved<T, undefined>;

/** A save that another one preceded or followed: merge `mine` and `theirs`, as seen from `base`, and save the result over `theirs`. */
export interface Unsaved<T, Mine = T> {
  /**
   * - `conflict`: someone else was first. Nothing was written.
   * - `superseded`: it was written, and someone else has written since. `base` is what was written.
   * - `unknown`: there was no response, and the document doesn't show whether the write took effect.
   */
  outcome: "conflict" | "superseded" | "unknown";
  base: T | Mine | undefined;
  theirs: Version<T>;
  mine: Mine;
}

/** The form of a document's bytes. */
export interface Codec<T> {
  /** Media type. */
  type: string;
  encode(value: T): string | Uint8Array;
  decode(bytes: Uint8Array): T;
}

export interface Options {
  /** Header fields of each request, such as `authorization`, or a function that returns them. */
  headers?: HeadersInit | Sender["headers"];
  /** Sends the requests, such as a service binding's. The platform's `fetch` by default. */
  fetch?: Sender["fetch"];
  /** Milliseconds for an operation with all its attempts. 30,000 by default. */
  patience?: number;
  /**
   * Adds a member `$ifmatch` to JSON documents, with the ids of the last writes, as the Rust library does: it settles whether a
   * write without a response took effect, and keeps fencing tokens. For stores of documents; `false` by default.
   */
  stamps?: boolean;
  /** Before the first write below a folder, makes sure by two requests that the server honours conditions. `true` by default. */
  probe?: boolean;
  /** Number of documents that are kept, so that an unchanged one isn't transferred again. 100 by default. */
  copies?: number;
}

export interface CallOptions<T> {
  /** JSON by default. */
  codec?: Codec<T>;
  signal?: AbortSignal;
}

export interface WriteOptions<T> extends CallOptions<T> {
  /** A lock. The write fails if it is lost, or if a later holder has written. */
  held?: Held;
}

/** A codec of JSON. `check` returns the value as a `T`, or throws. */
export function json<T>(check: (value: unknown) => T = (value) => value as T): Codec<T> {
  return {
    type: "application/json",
    encode(value) {
      const encoded = JSON.stringify(value) as string | undefined;
      if (encoded === undefined) throw new TypeError("the value can't be JSON");
      return encoded;
    },
    decode: (bytes) => check(JSON.parse(decode(bytes))),
  };
}

/** A codec of plain text. */
export const text: Codec<string> = { type: "text/plain; charset=utf-8", encode: (value) => value, decode };

/** A client for one person: it keeps copies of what the server sends. Clients share nothing. */
export class Client {
  readonly #store: Store;
  readonly #stamps: boolean;
  readonly #patience: number;
  /** The bytes of the versions that were returned: programs change values in place. */
  readonly #bases = new WeakMap<Version<never>, Raw>();
  /** Updates of one document from here take turns instead of conflicting. */
  readonly #turns = new Map<string, Promise<void>>();

  constructor({ headers, fetch, patience = 30_000, stamps = false, probe = true, copies = 100 }: Options = {}) {
    const sender: Sender = {
      fetch: fetch ?? ((url, init) => globalThis.fetch(url, init)),
      headers: typeof headers === "function" ? headers : () => headers,
    };
    this.#store = new Store(sender, copies, probe);
    this.#stamps = stamps;
    this.#patience = patience;
  }

  /** Reads the current version. The content is transferred only if it has changed. */
  async read<T = unknown>(url: string | URL, options: CallOptions<T> = {}): Promise<Version<T>> {
    const at = absolute(url);
    return this.#version(at, await this.#store.read(at, this.#pace(options)), options);
  }

  /** Replaces the version that was read, and no other. Creates the document if there was none. */
  async save<T>(version: Version<T>, mine: T, options: WriteOptions<T> = {}): Promise<Saved<T>> {
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
  async create<T>(url: string | URL, mine: T, options: WriteOptions<T> = {}): Promise<Saved<T>> {
    return this.save(none(absolute(url)), mine, options);
  }

  /** Removes the version that was read, and no other. */
  async remove<T>(version: Found<T>, options: WriteOptions<T> = {}): Promise<Removed<T>> {
    const pace = this.#pace(options);
    const at = absolute(version.url);
    const base = await this.#base(at, version, pace);
    const unsaved = (outcome: Unsaved<T>["outcome"], raw: Raw | null): Removed<T> => {
      const value = base?.etag === version.etag ? this.#version(at, base, options).value : version.value;
      return { outcome, base: value, theirs: this.#version(at, raw, options), mine: undefined };
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
  async update<T>(
    url: string | URL,
    change: (value: T | undefined) => T | undefined | Promise<T | undefined>,
    options: WriteOptions<T> = {},
  ): Promise<Version<T>> {
    const at = absolute(url);
    const pace = this.#pace(options);
    return this.#inTurn(at, pace, async () => {
      let base = await this.#store.read(at, pace);
      for (;;) {
        const mine = await change(this.#version(at, base, options).value);
        if (mine === undefined) return this.#version(at, base, options);
        const written = await this.#write(at, base, mine, options, pace).catch((error: unknown) => {
          // There was no time left to read what the others have written.
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
  async lock<R>(url: string | URL, work: (held: Held) => R | Promise<R>, options: LockOptions = {}): Promise<R> {
    return lock(this.#store, absolute(url), work, options);
  }

  #pace({ signal }: { signal?: AbortSignal }): Pace {
    return new Pace(now() + this.#patience, signal);
  }

  /** Returns the bytes of a version, as they were read, or the current version if this client doesn't have them. */
  async #base<T>(url: string, version: Version<T>, pace: Pace): Promise<Raw | null> {
    if (version.etag === null) return null;
    const known = [this.#bases.get(version as Version<never>), this.#store.copy(url)];
    return known.find((raw) => raw?.etag === version.etag) ?? this.#store.read(url, pace);
  }

  async #write<T>(url: string, base: Raw | null, mine: T, options: WriteOptions<T>, pace: Pace): Promise<Written> {
    const codec: Codec<T> = options.codec ?? json();
    const encoded = codec.encode(mine);
    const fields: Record<string, string> = { "content-type": codec.type, ...this.#fence(url, base, options.held) };
    const change: Change = { method: "PUT", type: codec.type, fields };
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
  #fence(url: string, base: Raw | null, held: Held | undefined): Record<string, string> {
    if (!held) return {};
    if (!this.#stamps) throw new TypeError("only a client with the option `stamps` keeps fencing tokens with the documents");
    if (held.lost || (this.#parts(url, base).stamp?.fence ?? 0) > held.fence) throw gone(url);
    return { "lease-token": String(held.fence) };
  }

  #parts(url: string, raw: Raw | null): Partial<ReturnType<typeof detach>> {
    if (!raw) return {};
    return this.#stamps ? detach(url, raw.bytes) : { bytes: raw.bytes };
  }

  #version<T>(url: string, raw: Raw | null, { codec = json() }: CallOptions<T>): Version<T> {
    if (!raw) return none(url);
    const bytes: Bytes = this.#parts(url, raw).bytes!;
    try {
      const version = { url, etag: raw.etag, value: codec.decode(bytes) };
      this.#bases.set(version as Version<never>, raw);
      return version;
    } catch (cause) {
      throw new ClientError("refused", `${url}: the document isn't of the expected type (${cause})`, undefined, { cause });
    }
  }

  #saved<T>(url: string, base: Raw | null, written: Written, mine: T, options: WriteOptions<T>): Saved<T> {
    const version = this.#version(url, written.now, options);
    if (written.is === "done" && version.etag !== null) return { outcome: "saved", version };
    const outcome = written.is === "done" ? "superseded" : written.is;
    return { outcome, base: outcome === "superseded" ? mine : this.#version(url, base, options).value, theirs: version, mine };
  }

  async #inTurn<R>(url: string, pace: Pace, work: () => Promise<R>): Promise<R> {
    const before = this.#turns.get(url);
    let end!: () => void;
    const turn = new Promise<void>((resolve) => (end = resolve));
    this.#turns.set(url, turn);
    const limit = new AbortController();
    try {
      if (before) await Promise.race([before, sleep(this.#patience, AbortSignal.any([limit.signal, ...(pace.signal ? [pace.signal] : [])]))]);
      limit.abort();
      if (now() >= pace.until) throw contended(url);
      return await work();
    } finally {
      end();
      if (this.#turns.get(url) === turn) this.#turns.delete(url);
    }
  }
}

const contended = (url: string) => new ClientError("contended", `${url}: others were first until the time was over`);

const none = (url: string): Absent => ({ url, etag: null, value: undefined });

/** An address without a server is the caller's mistake, not a missing response. */
const absolute = (url: string | URL) => new URL(url, globalThis.location?.href).href;
