import type { IncomingMessage, ServerResponse } from "node:http";
import type { Options, Replaces, Version } from "./conditions.js";

export type { Replaces, Version } from "./conditions.js";

/**
 * Middleware for `node:http`, Express and Connect: a write runs if its condition holds, and gets 412, 428 or 501 otherwise. The handler
 * must then replace the version `replaces(req)`, and no other: call `preconditionFailed(res)` if your storage has another one.
 * It leaves reads alone: a handler sends its tag in `ETag`, and Express answers 304, except to `Cache-Control: no-cache`.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- what a framework adds, such as `params`, is known only to it
export function conditional<Req extends IncomingMessage = any>(
  options?: Omit<Options<[Req]>, "maxLength">,
): (req: Req, res: ServerResponse, next: (error?: unknown) => void) => void;

/** Returns the version that a write replaces. Throws a TypeError for a request that did not pass `conditional`. */
export function replaces(req: IncomingMessage): Replaces;

/** Answers 412, for a write that lost the race for the version it replaces. The response has the tag of `current`. */
export function preconditionFailed(res: ServerResponse, current?: Version): Promise<void>;
