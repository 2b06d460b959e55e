import type { Context, MiddlewareHandler } from "hono";
import type { Options, Replaces } from "./conditions.js";

export { preconditionFailed, type Options, type Replaces, type Version } from "./conditions.js";

/**
 * Middleware: responses to reads get a strong tag, unless they have one, and become 304 or 412 on a condition; a write runs if its
 * condition holds. The handler must then replace the version `replaces(c)`, and no other: return `preconditionFailed()` if your
 * storage has another one.
 */
export function conditional(options?: Options<[Context]>): MiddlewareHandler;

/**
 * Returns the version that a write replaces, in a handler behind `conditional`. Throws a TypeError elsewhere, such as in another app
 * below `app.mount`, which does not see this app's middleware.
 */
export function replaces(c: Context): Replaces;
