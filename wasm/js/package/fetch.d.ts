import type { Options, Replaces } from "./conditions.js";

export { preconditionFailed, type Options, type Replaces, type Version } from "./conditions.js";

/**
 * Wraps a handler. Responses to reads get a strong tag, unless they have one, and become 304 or 412 on a condition; a write runs if its
 * condition holds. The handler must then replace the version `replaces(request)`, and no other: return `preconditionFailed()` if your
 * storage has another one.
 */
export function conditional<Req extends Request, Rest extends unknown[]>(
  handler: (request: Req, ...rest: Rest) => Response | Promise<Response>,
  options?: Options<[Req, ...Rest]>,
): (request: Req, ...rest: Rest) => Promise<Response>;

/** Returns the version that a write replaces, in a handler that `conditional` wraps. Throws a TypeError for a copy of its request. */
export function replaces(request: Request): Replaces;
