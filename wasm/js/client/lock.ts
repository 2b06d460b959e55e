// A lock in one document, changed by compare-and-swap. The record and the times are those of the Rust library.
import { ClientError, decode, now, Pace, random, sleep } from "./http.js";
import { attach, detach, next } from "./stamp.js";
import { type Raw, type Store, type Written } from "./store.js";

/** Options of a lock. */
export interface LockOptions {
  /** Milliseconds after which others take over from a holder that doesn't renew the lock. At least 3,000; 30,000 by default. */
  ttl?: number;
  /** Milliseconds to wait while others hold it. Without a limit by default. */
  wait?: number;
  /** Label that others see. */
  holder?: string;
  signal?: AbortSignal;
}

/** A held lock. */
export interface Held {
  /** Fencing token: larger for each new holder. */
  readonly fence: number;
  /** Aborted when the lock is lost. */
  readonly signal: AbortSignal;
  /** `true` once the lock is lost or released, by the clock: timers may be late in a hidden page. */
  readonly lost: boolean;
}

/** The content of the document, in the form of the Rust library. */
interface Lock {
  holder: string;
  fence: number;
  ttl_ms: number;
  held: boolean;
}

/** Milliseconds for a release. */
const RELEASE = 10_000;
/** Milliseconds to wait for a response that shows the lock. */
const ANSWER = 10_000;
/** Milliseconds between two such waits. */
const AGAIN = 1000;

/** Acquires the lock, does the work, and releases the lock. */
export async function lock<R>(store: Store, url: string, work: (held: Held) => R | Promise<R>, options: LockOptions): Promise<R> {
  const { ttl = 30_000, wait = Infinity, holder = "", signal } = options;
  if (!(ttl >= 3000)) throw new RangeError("a lock's ttl is at least 3000 milliseconds");
  const grant = await acquire(store, url, { ttl, until: now() + wait, holder, signal });
  const lost = new Promise<never>((_, reject) => grant.signal.addEventListener("abort", () => reject(gone(url)), { once: true }));
  lost.catch(() => {});
  try {
    signal?.throwIfAborted();
    const done = await Promise.race([work(grant), lost]);
    if (grant.lost) throw gone(url);
    return done;
  } finally {
    await grant.release();
  }
}

/** Error of work whose lock is lost. */
export const gone = (url: string) => new ClientError("lost", `${url}: the lock is lost, or a later holder has written: its work must not continue`);

/** Waits until the lock can be taken, and takes it. */
async function acquire(
  store: Store,
  url: string,
  { ttl, until, holder, signal }: { ttl: number; until: number; holder: string; signal?: AbortSignal | undefined },
): Promise<Grant> {
  let seen: { etag: string; since: number } | undefined;
  for (;;) {
    let raw: Raw | null;
    try {
      raw = await store.read(url, new Pace(now() + ANSWER, signal));
    } catch (error) {
      if (!isUnknown(error) || now() >= until) throw error;
      await sleep(AGAIN, signal);
      continue;
    }
    // After the read, so the holder has sent this version before.
    const at = now();
    const previous = raw && record(url, raw);
    if (raw && seen?.etag !== raw.etag) seen = { etag: raw.etag, since: at };
    const end = previous?.held ? seen!.since + previous.ttl_ms : at;
    if (end <= at) {
      // The first token is the time in microseconds, so that it exceeds those of a lock that was deleted.
      const taken: Lock = { holder, fence: previous ? previous.fence + 1 : Date.now() * 1000, ttl_ms: ttl, held: true };
      const sent = instant();
      try {
        const written = await put(store, url, raw, taken, now() + ttl - margin(ttl));
        if (written.is === "done") return new Grant(store, url, written.now!, taken, sent);
      } catch (error) {
        if (!isUnknown(error) || now() >= until) throw error;
      }
      continue;
    }
    if (at >= until) throw new ClientError("contended", `${url}: ${previous?.holder || "another client"} holds the lock`);
    const interval = Math.min(1000, Math.max(100, ttl / 10)) * (0.5 + Math.random() / 2);
    await sleep(Math.min(interval, end - at, until - at), signal);
  }
}

/** The right to work under a lock: renewed until it is lost or released. */
class Grant implements Held {
  readonly #lost = new AbortController();
  readonly #stop = new AbortController();
  readonly #keeper: Promise<void>;

  constructor(
    readonly store: Store,
    readonly url: string,
    private raw: Raw,
    private readonly lock: Lock,
    private sent: Instant,
  ) {
    this.#keeper = this.#keep();
  }

  get fence(): number {
    return this.lock.fence;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  get lost(): boolean {
    return this.#lost.signal.aborted || this.#remaining() <= 0;
  }

  /** Counts from before the last successful renewal was sent, on whichever clock has run further. */
  #remaining(): number {
    return this.lock.ttl_ms - margin(this.lock.ttl_ms) - since(this.sent);
  }

  async #keep(): Promise<void> {
    try {
      for (;;) {
        await sleep(Math.max(0, this.lock.ttl_ms / 3 - since(this.sent)), this.#stop.signal);
        if (!(await this.#renew())) return this.#lost.abort(gone(this.url));
      }
    } catch {
      // Released.
    }
  }

  /** Writes the record again. Only a definite answer or the deadline ends the attempts. */
  async #renew(): Promise<boolean> {
    const pace = new Pace(now() + this.#remaining());
    for (;;) {
      const sent = instant();
      try {
        const written = await put(this.store, this.url, this.raw, this.lock, now() + this.#remaining());
        if (written.is !== "done") return false;
        this.raw = written.now!;
        this.sent = sent;
        return true;
      } catch (error) {
        // A refusal can pass, as an expired token does.
        if (isUnknown(error) || !(await pace.next())) return false;
      }
    }
  }

  /** Ends the work's right first. If the lock is lost, the work may still run: it then ends by its time to live. */
  async release(): Promise<void> {
    const isLost = this.lost;
    this.#stop.abort();
    // A renewal on its way would bring the lock back.
    await this.#keeper;
    if (isLost || this.#lost.signal.aborted) return this.#lost.abort(gone(this.url));
    this.#lost.abort(gone(this.url));
    // If this fails, the lock ends by its time to live.
    await put(this.store, this.url, this.raw, { ...this.lock, held: false }, now() + RELEASE).catch(() => {});
  }
}

function put(store: Store, url: string, base: Raw | null, lock: Lock, until: number): Promise<Written> {
  const id = random();
  const stamp = next(base ? detach(url, base.bytes).stamp : undefined, id);
  const bytes = attach(JSON.stringify(lock), stamp);
  const fields = { "content-type": TYPE, "idempotency-key": id };
  return store.write(url, base, { method: "PUT", type: TYPE, fields, bytes, stamp }, new Pace(until));
}

const TYPE = "application/json";

function record(url: string, raw: Raw): Lock {
  const lock = JSON.parse(decode(detach(url, raw.bytes).bytes)) as Lock;
  if (!Number.isSafeInteger(lock?.fence) || typeof lock.ttl_ms !== "number" || typeof lock.held !== "boolean") {
    throw new ClientError("refused", `${url}: the document isn't a lock's`);
  }
  return lock;
}

const isUnknown = (error: unknown) => error instanceof ClientError && error.kind === "unknown";

/** Milliseconds by which a holder ends its work before its time to live is over. */
const margin = (ttl: number) => Math.max(1000, ttl / 10);

/** A moment on two clocks: one that is never set, and the time of day. */
interface Instant {
  clock: number;
  day: number;
}

const instant = (): Instant => ({ clock: now(), day: Date.now() });

/** Returns the milliseconds since a moment. Some systems stop one clock while they sleep, and people set the other. */
const since = ({ clock, day }: Instant) => Math.max(now() - clock, Date.now() - day);
