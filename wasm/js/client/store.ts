// Documents as bytes with strong tags: reads that revalidate, and conditional writes with the fate of those without a response.
import { ClientError, Pace, random, send, strongTag, type Answer, type Bytes, type Sender } from "./http.js";
import { detach, fate, type Stamp } from "./stamp.js";

/** The content of a document at one version. */
export interface Raw {
  etag: string;
  bytes: Bytes;
}

/** A conditional write. */
export interface Change {
  method: "PUT" | "DELETE";
  /** Media type of the document. */
  type: string;
  fields: Record<string, string>;
  bytes?: Bytes;
  stamp?: Stamp;
}

/** The outcome of a write, and the document then. */
export interface Written {
  is: "done" | "superseded" | "conflict" | "unknown";
  now: Raw | null;
  /** Why it is unknown. */
  error?: ClientError;
}

/** Repeated reads of a document whose tag is weak: Apache's is weak for a second after a write. */
const LOOKS = 12;
/** Milliseconds between two of these reads. */
const LOOK = 250;
/** Attempts without a pause, as long as the server answers reads. */
const RESENDS = 3;
/** Versions that a probe is sent for, while others replace them. */
const PROBES = 5;

/** The documents of one client: copies of those that it has read, and the folders whose server honours conditions. */
export class Store {
  readonly #copies = new Map<string, Raw>();
  readonly #proven = new Set<string>();

  constructor(
    readonly sender: Sender,
    readonly copies: number,
    readonly probes: boolean,
  ) {}

  copy(url: string): Raw | undefined {
    return this.#copies.get(url);
  }

  #keep(url: string, raw: Raw | null): Raw | null {
    this.#copies.delete(url);
    if (raw) this.#copies.set(url, raw);
    if (this.#copies.size > this.copies) this.#copies.delete(this.#copies.keys().next().value!);
    return raw;
  }

  /** Reads the current version, or `null` if there is none. Tries again without a response, until the time is over. */
  async read(url: string, pace: Pace): Promise<Raw | null> {
    for (;;) {
      const answer = await this.#look(url, pace);
      if ("etag" in answer) return answer.raw;
      if (answer.is !== "unknown" || !(await pace.next(answer.retryAfter))) throw answer.error;
    }
  }

  /** Makes one attempt to read. Looks again for a few seconds if the tag is weak. */
  async #look(url: string, pace: Pace): Promise<Answer | { etag: true; raw: Raw | null }> {
    const known = this.#copies.get(url);
    for (let looks = 0; ; looks += 1) {
      const answer = await send(this.sender, pace, "GET", url, known ? { "if-none-match": known.etag } : {});
      if (answer.status === 304 && known) return { etag: true, raw: known };
      if (answer.status === 404 || answer.status === 410) return { etag: true, raw: this.#keep(url, null) };
      if (answer.status !== 200) return answer;
      const etag = strongTag(answer.headers);
      if (etag) return { etag: true, raw: this.#keep(url, { etag, bytes: answer.bytes }) };
      const weak = answer.headers.get("etag");
      if (!weak || looks === LOOKS || !(await pace.sleep(LOOK))) return { ...answer, is: "refused", error: noTag(url, weak, answer) };
    }
  }

  /** Reads once. Returns `undefined` if that fails. */
  async #glance(url: string, pace: Pace): Promise<Raw | null | undefined> {
    const answer = await this.#look(url, pace);
    return "etag" in answer ? answer.raw : undefined;
  }

  /**
   * Replaces the version `base`, or creates the document. Sends the same request again while its outcome is unknown.
   *
   * The first write below a folder makes sure that the server honours conditions: before it replaces a document, or after it has
   * created one. What is there already isn't written to create it: a server that ignores conditions would overwrite it.
   */
  async write(url: string, base: Raw | null, change: Change, pace: Pace): Promise<Written> {
    if (base && !(await this.#prove(url, base, change.type, pace))) return { is: "conflict", now: null };
    if (!base && this.probes && !this.#proven.has(folderOf(url))) {
      const found = await this.read(url, pace);
      if (found) return { is: "conflict", now: found };
    }
    const written = await this.#attempt(url, base, change, pace);
    if (base || written.is !== "done" || !written.now) return written;
    try {
      return (await this.#prove(url, written.now, change.type, pace)) ? written : { is: "superseded", now: null };
    } catch (error) {
      if (!(error instanceof ClientError) || error.kind !== "refused") throw error;
      // Where conditions are ignored, nothing can be changed safely.
      const removed = await send(this.sender, pace, "DELETE", url, { "if-match": written.now.etag });
      this.#keep(url, null);
      throw removed.is === "done" ? error : new ClientError("refused", `${error.message}. What was created is left.`);
    }
  }

  async #attempt(url: string, base: Raw | null, change: Change, pace: Pace): Promise<Written> {
    const { method, bytes, stamp } = change;
    const fields: Record<string, string> = { ...change.fields, ...(base ? { "if-match": base.etag } : { "if-none-match": "*" }) };
    const again = new Pace(pace.until, pace.signal);
    let doubt: ClientError | undefined;
    for (let resends = 0; ; ) {
      const answer = await send(this.sender, pace, method, url, fields, bytes);
      if (answer.is === "done") {
        if (method === "DELETE") return { is: "done", now: this.#keep(url, null) };
        const etag = strongTag(answer.headers);
        // No copy: the server may have stored something else than was sent.
        this.#keep(url, null);
        if (etag) return { is: "done", now: { etag, bytes: bytes! } };
        // It took effect. Which version it is, only a read tells.
        const found = await this.read(url, pace);
        return { is: found && same(found.bytes, bytes!) ? "done" : "superseded", now: found };
      }
      if (answer.is === "conflict") {
        // Others write, too.
        if (!doubt) await pace.next();
        const found = await this.#afterwards(url, pace, doubt ?? answer.error);
        // The server was busy with another write, which may be an earlier attempt of this one.
        if (base && found?.etag === base.etag && (await pace.next())) continue;
        return this.#settle(url, base, stamp, found, doubt) ?? { is: doubt ? "unknown" : "conflict", now: found, error: doubt ?? answer.error };
      }
      if (answer.is !== "unknown" && !doubt) throw answer.error;
      // It may have taken effect, now or at an earlier attempt. At once: the fewer writes follow, the surer the document tells.
      doubt ??= answer.error;
      const found = await this.#glance(url, pace);
      if (found !== undefined) {
        const settled = this.#settle(url, base, stamp, found, doubt);
        if (settled) return settled;
      }
      resends += found === undefined ? RESENDS : 1;
      const waited = resends < RESENDS && !answer.retryAfter ? await pace.sleep(0) : await again.next(answer.retryAfter);
      if (!waited) throw doubt;
    }
  }

  /** Reads after a conflict. */
  async #afterwards(url: string, pace: Pace, error: ClientError): Promise<Raw | null> {
    try {
      return await this.read(url, pace);
    } catch (cause) {
      pace.signal?.throwIfAborted();
      throw new ClientError(error.kind, `${error.message}; what is there now couldn't be read`, error.status, { cause });
    }
  }

  /** Returns the outcome of a write, given the document after it, or `undefined` if that doesn't tell: the request may be sent again. */
  #settle(url: string, base: Raw | null, stamp: Stamp | undefined, found: Raw | null, doubt: ClientError | undefined): Written | undefined {
    const told = stamp && fate(stamp, found ? detach(url, found.bytes).stamp : undefined, !base);
    if (told === "current") return { is: "done", now: found };
    if (told === "superseded") return { is: "superseded", now: found };
    if (told === "not done") return { is: "conflict", now: found };
    // Without a stamp, a document that has changed may hold this write, or another one of the same bytes.
    if (doubt && !stamp && found?.etag !== base?.etag) return { is: "unknown", now: found, error: doubt };
    return undefined;
  }

  /** Makes sure that the server honours conditions on writes. Returns `false` if the document has been deleted. */
  async #prove(url: string, { etag, bytes }: Raw, type: string, pace: Pace): Promise<boolean> {
    const folder = folderOf(url);
    if (!this.probes || this.#proven.has(folder)) return true;
    await this.#rejects(url, "If-Match", { "content-type": type, "if-match": `"${random()}"` }, bytes, pace);
    for (let probes = 0; probes < PROBES; probes += 1) {
      // Beside an `If-Match` that is true: alone, it could bring back a document that another client has deleted.
      const told = await this.#rejects(url, "If-None-Match: *", { "content-type": type, "if-match": etag, "if-none-match": "*" }, bytes, pace);
      if (told === etag) break;
      // If there is another version, it may have been If-Match that was false.
      const found = await this.read(url, pace);
      if (!found) return false;
      if (found.etag === etag) break;
      ({ etag, bytes } = found);
    }
    this.#proven.add(folder);
    return true;
  }

  /** Sends a write that must be rejected, since its condition is false. Returns the current tag, if the server tells it. */
  async #rejects(url: string, condition: string, fields: Record<string, string>, bytes: Bytes, pace: Pace): Promise<string | undefined> {
    for (;;) {
      const answer = await send(this.sender, pace, "PUT", url, fields, bytes);
      if (answer.is === "done") {
        const why = "it accepted a write although the condition is false, so clients would overwrite each other's changes";
        throw new ClientError("refused", `${url}: the server ignores ${condition}: ${why}. Use a server that honours conditions`, answer.status);
      }
      // Another rejection doesn't concern the conditions: the write that follows gets it, too.
      if (answer.is !== "unknown") return strongTag(answer.headers);
      if (!(await pace.next(answer.retryAfter))) throw answer.error;
    }
  }
}

function noTag(url: string, weak: string | null, { hidden }: Answer): ClientError {
  const why = weak
    ? `the ETag ${weak} is weak, which never satisfies If-Match. If something in between compresses, send the document with Cache-Control: no-transform`
    : hidden
      ? "this page can't read an ETag: the server must send one, and Access-Control-Expose-Headers: ETag"
      : "the server names no ETag, so a write could overwrite another client's";
  return new ClientError("refused", `${url}: ${why}`, 200);
}

function folderOf(url: string): string {
  return new URL(".", url).href;
}

function same(a: Bytes, b: Bytes): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
