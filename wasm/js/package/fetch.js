// Conditional requests for handlers that take a Request and return a Response.
import { after, before, checked, preconditionFailed } from "./conditions.js";

export { preconditionFailed };

const replaced = new WeakMap();

export function conditional(handler, options = {}) {
  const rules = checked(options);
  return async (request, ...rest) => {
    const { refusal, replaces } = await before(request, rules, () => rules.current(request, ...rest));
    if (refusal) return refusal;
    replaced.set(request, replaces);
    return after(request, await handler(request, ...rest), rules);
  };
}

export function replaces(request) {
  // A copy has the conditions of the request, and no one has evaluated them.
  if (!replaced.has(request)) throw new TypeError("replaces() needs the request that the handler was called with, not a copy of it");
  return replaced.get(request);
}
