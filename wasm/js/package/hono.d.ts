import type { Context, MiddlewareHandler } from "hono";
import type { Options, Replaces } from "./conditions.js";

export { preconditionFailed, type Options, type Replaces, type Version } from "./conditions.js";

/** The variable that `conditional` sets for handlers. */
export interface Variables {
  /** The version that the write replaces. */
  replaces: Replaces;
}

/**
 * Middleware: responses to reads get a strong tag, unless they have one, and become 304 or 412 on a condition; a write runs if its
 * condition holds. The handler must then replace the version `c.get("replaces")`, and no other: return `preconditionFailed()` if your
 * storage has another one.
 */
export function conditional(options?: Options<[Context]>): MiddlewareHandler<{ Variables: Variables }>;
