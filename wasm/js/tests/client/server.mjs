// A server with one document over HTTP, whose network and other clients act as a scenario says. `tests/client/scenarios.rs` of the Rust
// client has the same.
import { createServer } from "node:http";

/** Starts the server. `document` is the number, or `null`. */
export async function serve(test, { behaviour = "-", document = null, writes = [], always = false } = {}) {
  const state = { content: null, version: 0, requests: [], looks: 0, rivals: 0, writes: [...writes] };
  const set = (content) => {
    state.version += 1;
    state.content = content;
  };
  const stamped = (n) => {
    state.rivals += 1;
    const id = `rival ${state.rivals}`;
    const { chain = id, writes = 0, recent = [] } = (state.content && JSON.parse(state.content).$ifmatch) ?? {};
    set(JSON.stringify({ n, $ifmatch: { chain, writes: writes + 1, recent: [...recent, id] } }));
  };
  const number = () => (state.content === null ? null : JSON.parse(state.content).n);
  const rival = (n = (number() ?? 0) + 10) => stamped(n);
  if (document !== null) stamped(document);

  const strong = () => `"v${state.version}"`;
  /** The tag of a response, or `null`. */
  const tag = (isWrite) => {
    if (behaviour === "untagged" || (isWrite && behaviour === "untagged-writes")) return null;
    if (behaviour === "weak" || (behaviour === "weak-at-first" && !isWrite && (state.looks += 1) <= 2)) return `W/${strong()}`;
    return strong();
  };

  const holds = ({ "if-match": match, "if-none-match": none }) => {
    const matches = match === undefined || behaviour === "ignores-if-match" || (state.content !== null && match === strong());
    return matches && (none === undefined || behaviour === "ignores-if-none-match" || state.content === null);
  };
  /** Carries a write out. Returns the status. */
  const write = ({ method, headers }, body) => {
    if (!holds(headers)) return 412;
    const existed = state.content !== null;
    set(method === "DELETE" ? null : behaviour === "completes" ? JSON.stringify({ ...JSON.parse(body), by: "server" }) : body);
    return existed ? 204 : 201;
  };

  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { method, headers } = request;
    state.requests.push({ method, headers, body });
    const respond = (status) => {
      const fields = tagged(status, method !== "GET");
      response.writeHead(status, fields).end(status === 200 ? state.content : undefined);
    };
    const tagged = (status, isWrite) => {
      if (status === 303) return { location: request.url };
      const etag = state.content !== null && status < 500 ? tag(isWrite) : null;
      return etag ? { etag } : {};
    };
    if (method === "GET") {
      if (state.content === null) return respond(404);
      return respond(headers["if-none-match"] === strong() && ["-", "completes"].includes(behaviour) ? 304 : 200);
    }
    const isProbe = method === "PUT" && headers["if-match"] && (headers["if-none-match"] || !headers["if-match"].startsWith('"v'));
    if (isProbe) return respond(write(request, body));
    const steps = always ? writes[0] : (state.writes.shift() ?? ["write"]);
    let status;
    for (const step of steps) {
      if (step === "write") status = write(request, body);
      else if (step === "rival") rival();
      else if (step.startsWith("rival=")) rival(Number(step.slice("rival=".length)));
      else if (step === "program") set(JSON.stringify({ n: number() + 10 }));
      else if (step === "delete") set(null);
      else if (step === "drop") return request.socket.destroy();
      else if (/^\d{3}$/.test(step)) status = Number(step);
      else throw new Error(`${step} is no step`);
    }
    respond(status);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}/box/document`, state, number, rival };
}
