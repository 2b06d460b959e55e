import { WorkerEntrypoint } from "cloudflare:workers";

/**
 * The request was refused, and nothing was changed.
 *
 * | status | reason |
 * |---|---|
 * | 404 | there is no such blob |
 * | 409 | another write is in flight, or another client holds the lease |
 * | 412 | a condition is false, or the blob is leased and the write names no lease or another one |
 * | 428 | the Worker takes no write without a condition |
 */
export interface Refused {
  readonly ok: false;
  readonly status: 404 | 409 | 412 | 428;
  /** Such as `precondition-failed`, or `LeaseIdMissing`. */
  readonly code: string;
  /** What to do, in words. */
  readonly detail: string;
  /** The current tag, after a condition was false. */
  readonly etag: string | null;
  /** Time to wait in seconds, if that helps. */
  readonly retryAfter: number | null;
}

/** Everything else is thrown: 400, 401, 413, 503 and so on. After the code `outcome-unknown`, read the blob before the next write. */
export interface BlobsError extends Error {
  readonly name: "BlobsError";
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly retryAfter: number | null;
}

/** Conditions, with tags in quotes. `undefined` is a `TypeError`: it would make a write unconditional by mistake. */
export interface Conditions {
  /** `ETag`s separated by commas, or `*`: the blob must be one of these versions. */
  ifMatch?: string;
  /** `ETag`s separated by commas, or `*`: the blob must be none of these versions; with `*` it must not exist. */
  ifNoneMatch?: string;
}

export interface ReadOptions extends Conditions {}

export interface GetOptions extends Conditions {
  /** The part of the body to return. */
  range?: { offset?: number; length?: number } | { suffix: number };
}

/** Header fields kept with a blob. */
export interface Kept {
  contentType?: string;
  contentEncoding?: string;
  contentLanguage?: string;
  contentDisposition?: string;
  cacheControl?: string;
  /** Names in lower case. */
  metadata?: Record<string, string>;
}

export interface WriteOptions extends Conditions {
  /** The id of a lease on the blob. */
  leaseId?: string;
  /** A fencing token. */
  leaseToken?: string;
  /** Repeated with the same key, a write gets the answer of the first. */
  idempotencyKey?: string;
}

export interface PutOptions extends WriteOptions, Kept {
  /** Length of a stream in bytes. Without it, a stream is buffered and uploaded in parts. */
  size?: number;
}

export interface Found extends Kept {
  readonly ok: true;
  /** The tag, with its quotes. */
  readonly etag: string;
  /** `null` if it is not modified, or was written within this second: the next version could have the same date. */
  readonly lastModified: Date | null;
  /** `true` if `ifNoneMatch` names the current version: there is no body. */
  readonly notModified: boolean;
  /** Length of the whole blob in bytes; `null` if it is not modified. */
  readonly size: number | null;
  readonly metadata: Record<string, string>;
}

export interface Opened extends Found {
  readonly body: ReadableStream<Uint8Array> | null;
}

export interface Written {
  readonly ok: true;
  /** The tag of the new version, with its quotes. */
  readonly etag: string;
  /** `true` if there was no such blob. */
  readonly created: boolean;
}

export interface Done {
  readonly ok: true;
}

export interface LeaseOptions {
  /** 15 to 60, or -1 for a lease without an end. */
  seconds: number;
  /** A UUID of yours: sent again after a lost response, it gets the same lease. */
  id?: string;
  /** A label for operators. */
  holder?: string;
}

export interface Lease {
  readonly ok: true;
  readonly id: string;
  /** The fencing token: a number beyond the precision of `number`. */
  readonly token: string;
  /** Remaining time in seconds from the decision; `null` for a lease without an end. Count it from before the call. */
  readonly remaining: number | null;
}

export interface Broken {
  readonly ok: true;
  /** Time in seconds for which the lease still locks the blob. */
  readonly remaining: number | null;
}

/**
 * The blobs of the Worker, for other Workers of the account. The name of a blob is `container/name`.
 *
 * ```toml
 * services = [{ binding = "BLOBS", service = "ifmatch", entrypoint = "Blobs" }]
 * ```
 * ```ts
 * interface Env { BLOBS: Service<Blobs> }
 * ```
 */
export class Blobs extends WorkerEntrypoint {
  get(name: string, options?: GetOptions): Promise<Opened | Refused>;
  head(name: string, options?: ReadOptions): Promise<Found | Refused>;
  put(name: string, content: string | ArrayBuffer | ArrayBufferView | ReadableStream<Uint8Array>, options?: PutOptions): Promise<Written | Refused>;
  delete(name: string, options?: WriteOptions): Promise<Done | Refused>;
  acquireLease(name: string, options: LeaseOptions): Promise<Lease | Refused>;
  renewLease(name: string, id: string): Promise<Lease | Refused>;
  releaseLease(name: string, id: string): Promise<Done | Refused>;
  /** Ends the lease of another holder, after `seconds` (0 to 60, by default 0). */
  breakLease(name: string, seconds?: number): Promise<Broken | Refused>;
}
