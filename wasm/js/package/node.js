// Conditions of writes for Node: middleware of Express, Connect and their kin.
import { before, checked, preconditionFailed as failed } from "./conditions.js";

const replaced = new WeakMap();

export function conditional(options = {}) {
  const rules = checked(options, ["current", "required"]);
  return (req, res, next) => {
    const request = { method: req.method, headers: { get: (name) => req.headers[name] } };
    const decided = before(request, rules, () => rules.current(req)).then(async ({ refusal, replaces }) => {
      if (refusal) await send(res, refusal);
      else replaced.set(req, replaces);
      return !refusal;
    });
    // An error that next() throws is not passed to it, which would run the chain again.
    decided.then((passes) => { if (passes) next(); }, next);
  };
}

export const preconditionFailed = (res, current) => send(res, failed(current));

export function replaces(req) {
  if (!replaced.has(req)) throw new TypeError("replaces() needs the request of a handler behind conditional()");
  return replaced.get(req);
}

async function send(res, response) {
  res.statusCode = response.status;
  res.setHeaders(response.headers);
  res.end(await response.text());
}
