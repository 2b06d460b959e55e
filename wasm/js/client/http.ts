// One request, and what its response says about the write: done, in conflict, refused, or unknown.

/** Why an operation failed. */
export type Kind =
  /** Another version is current, and it couldn't be read. Nothing was written. */
  | "conflict"
  /** Others were first until the time was over. Nothing was written. */
  | "contended"
  /** The lock is lost, or a later holder has written. Nothing was written. */
  | "lost"
  /** The server rejects the request, or names no strong tag; nothing was written. Or it ignores conditions, and what was written to find
   *  that out may be left. */
  | "refused"
  /** There was no response, and the document doesn't show whether the write took effect. */
  | "unknown";

/** Error of an operation. An aborted operation rejects with its signal's reason instead. */
export class ClientError extends Error {
  override readonly name = "ClientError";

  constructor(
    readonly kind: Kind,
    message: string,
    /** The response's status, if there was a response. */
    readonly status?: number,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

export type Bytes = Uint8Array<ArrayBuffer>;

/** A response, completely read. */
export interface Answer {
  /** What it says about a write. */
  is: "done" | "conflict" | "refused" | "lost" | "unknown";
  status: number;
  headers: Headers;
  bytes: Bytes;
  /** `true` if the browser may hide header fields from this page. */
  hidden: boolean;
  error: ClientError;
  /** Time in milliseconds after which the server asks for another attempt. */
  retryAfter: number;
}

/** Sends requests, and names the header fields of each. */
export interface Sender {
  fetch: (url: string, init: RequestInit) => Promise<Response>;
  headers: (method: string, url: string) => HeadersInit | undefined | Promise<HeadersInit | undefined>;
}

/** Longest time of one attempt, in milliseconds. */
const ATTEMPT = 10_000;

/** Milliseconds of a clock that is never set. */
export const now = () => performance.now();

/** Sends a request within its operation's time, and reads the response. No response is an answer, too: unknown. */
export async function send(
  sender: Sender,
  { until, signal }: Pace,
  method: string,
  url: string,
  fields: Record<string, string>,
  body?: Bytes,
): Promise<Answer> {
  signal?.throwIfAborted();
  // Each coding has a tag of its own. Browsers ignore this field, and ask for what they like.
  const headers = new Headers({ "accept-encoding": "identity" });
  // A cache on the way may have an older version. Browsers say so themselves, without a question to other origins.
  if (method === "GET" && !globalThis.location) headers.set("cache-control", "no-cache");
  new Headers(await sender.headers(method, url)).forEach((value, name) => headers.set(name, value));
  for (const name in fields) headers.set(name, fields[name]!);
  const limit = AbortSignal.timeout(Math.ceil(Math.max(0, Math.min(ATTEMPT, until - now()))));
  const init: RequestInit = { method, headers, signal: signal ? AbortSignal.any([signal, limit]) : limit };
  if (body) init.body = body;
  // A redirected PUT may arrive as a GET, whose 200 would pass for the write's.
  if (method !== "GET") init.redirect = "manual";
  // Copies are this client's own. Some runtimes don't know the member.
  if ("cache" in Request.prototype) init.cache = "no-store";
  try {
    const response = await sender.fetch(url, init);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const { status, headers } = response;
    const error = failure(method, url, response, bytes);
    const is = response.ok && status !== 202 ? "done" : error.kind === "contended" ? "unknown" : error.kind;
    const retryAfter = 1000 * (Number(headers.get("retry-after")) || 0);
    return { is, status, headers, bytes, hidden: response.type === "cors", error, retryAfter };
  } catch (cause) {
    signal?.throwIfAborted();
    const error = new ClientError("unknown", `${method} ${url}: there was no response (${cause})`, undefined, { cause });
    return { is: "unknown", status: 0, headers: new Headers(), bytes: new Uint8Array(), hidden: false, error, retryAfter: 0 };
  }
}

/** Returns the error that a response other than success stands for. */
function failure(method: string, url: string, { status, headers, type }: Response, bytes: Bytes): ClientError {
  let detail = headers.get("x-ms-error-code") ?? "";
  const code = detail;
  try {
    detail = (JSON.parse(decode(bytes)) as { detail?: string }).detail ?? detail;
  } catch {
    // Most bodies aren't problem documents.
  }
  if (type === "opaqueredirect" || (status >= 300 && status < 400)) detail = "the server redirects writes: use the URL that it redirects to";
  if (status === 428 && !detail) detail = "the condition hasn't reached the server: does something in between remove If-Match?";
  return new ClientError(kind(status, code), `${method} ${url}: ${status}${detail && ` (${detail})`}`, status);
}

function kind(status: number, code: string): Kind {
  if (status === 412 && code === "LeaseTokenSuperseded") return "lost";
  // To read again wouldn't change that another client has a lease, or that there is no container.
  if ((status === 412 && code.startsWith("Lease")) || code === "ContainerNotFound") return "refused";
  // Also: 409 of a store with concurrent writers, and 404 of one that was told to replace what is gone.
  if ([404, 409, 410, 412].includes(status)) return "conflict";
  if ([408, 425, 429].includes(status)) return "unknown";
  if ([501, 507].includes(status)) return "refused";
  return status >= 500 || (status >= 200 && status < 300) ? "unknown" : "refused";
}

/** Returns the tag of a response, unless it is missing, weak or malformed (RFC 9110 §8.8.3). */
export function strongTag(headers: Headers): string | undefined {
  const tag = headers.get("etag");
  return tag !== null && /^"[\x21\x23-\x7e\x80-\xff]*"$/.test(tag) ? tag : undefined;
}

export const encode = (text: string): Bytes => new TextEncoder().encode(text);
export const decode = (bytes: Uint8Array): string => new TextDecoder("utf-8", { fatal: true }).decode(bytes);

/** Returns a random number in hexadecimal digits. */
export function random(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The time limit of an operation, and the pauses between its attempts: each up to twice as long as the one before, half of it random. */
export class Pace {
  #pause = 10;

  constructor(
    /** On the clock of `now`. */
    readonly until: number,
    readonly signal?: AbortSignal,
  ) {}

  /** Waits for the next pause, and at least for a time. Returns `false` if the time is over. */
  async next(atLeast = 0): Promise<boolean> {
    const pause = this.#pause * (0.5 + Math.random() / 2);
    this.#pause = Math.min(1000, 2 * this.#pause);
    return this.sleep(Math.max(pause, Math.min(atLeast, (this.until - now()) / 2)));
  }

  /** Waits. Returns `false` if the time would then be over. */
  async sleep(time: number): Promise<boolean> {
    if (now() + time >= this.until) return false;
    await sleep(time, this.signal);
    return now() < this.until;
  }
}

/** Waits. Rejects with the signal's reason if it is aborted. */
export function sleep(time: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, time);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
  });
}
