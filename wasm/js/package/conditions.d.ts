import type { Validators } from "ifmatch";

/** A version of a resource: its tag with quotes, or its validators; `null` if the resource does not exist. */
export type Version = string | Validators | null | undefined;

/** The validators of the version that a write replaces. `null`: the resource must not exist yet. `undefined`: the write has no condition. */
export type Replaces = Validators | null | undefined;

/** Options of `conditional`. An unknown one is a `TypeError`. */
export interface Options<Arguments extends unknown[]> {
  /**
   * Returns the current version of the requested resource, as a GET tells it in `ETag` and `Last-Modified`. It is asked for writes with a
   * condition only. Without this option, such writes get 501.
   */
  current?(...args: Arguments): Version | Promise<Version>;
  /** `true`: PUT, PATCH and DELETE without a condition get 428 (RFC 6585 §3). Default `false`. */
  required?: boolean;
  /** Maximum length in bytes of a response that is read to compute its tag. Longer ones have the tags that the handler gives them. Default 1 MiB. */
  maxLength?: number;
}

/** Returns a 412, for a write that lost the race for the version it replaces. The response has the tag of `current`. */
export function preconditionFailed(current?: Version): Response;
