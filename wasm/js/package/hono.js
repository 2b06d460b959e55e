// Conditional requests for Hono.
import { after, before, checked, preconditionFailed } from "./conditions.js";

export { preconditionFailed };

export function conditional(options = {}) {
  const rules = checked(options);
  return async (c, next) => {
    const { refusal, replaces } = await before(c.req.raw, rules, () => rules.current(c));
    if (refusal) return refusal;
    c.set("replaces", replaces);
    await next();
    const answer = await after(c.req.raw, c.res, rules);
    if (answer === c.res) return;
    // Hono would add the fields of the response that is replaced.
    c.res = undefined;
    c.res = answer;
  };
}
