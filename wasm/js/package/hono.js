// Conditional requests for Hono.
import { after, before, checked, preconditionFailed } from "./conditions.js";

export { preconditionFailed };

const replaced = new WeakMap();

export function conditional(options = {}) {
  const rules = checked(options);
  return async (c, next) => {
    const { refusal, replaces } = await before(c.req.raw, rules, () => rules.current(c));
    if (refusal) return refusal;
    replaced.set(c, replaces);
    // Set by middleware around this one, such as cors.
    const outer = [...c.res.headers];
    await next();
    const answer = await after(c.req.raw, c.res, rules);
    if (answer === c.res) return;
    // Hono would add the fields of the response that is replaced.
    c.res = undefined;
    c.res = answer;
    const own = new Set(answer.headers.keys());
    if (answer.status === 412) outer.filter(([name]) => !own.has(name)).forEach(([name, value]) => answer.headers.append(name, value));
  };
}

export function replaces(c) {
  // A mounted app has a context of its own, and its write would be unconditional.
  if (!replaced.has(c)) throw new TypeError("replaces() needs the context of a handler behind conditional(): in an app that is mounted, use conditional() there");
  return replaced.get(c);
}
