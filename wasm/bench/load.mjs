// Requests over persistent connections, one at a time on each.
import http from "node:http";

/** One request; the answer is read to its end. */
export function ask(agent, url, { method = "GET", headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": String(body.length) };
    const options = { agent, method, headers: { "accept-encoding": "identity", ...length, ...headers } };
    const request = http.request(url, options, (response) => {
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers }));
      response.resume();
    });
    request.on("error", reject);
    request.end(body);
  });
}

/** How many requests a second `connections` clients get done; `once(agent, number of the client)` is a client's request. */
export async function rate(connections, count, once) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
  const begun = process.hrtime.bigint();
  let left = count;
  const client = async (number) => {
    while (left-- > 0) await once(agent, number);
  };
  await Promise.all(Array.from({ length: connections }, (_, number) => client(number)));
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
  agent.destroy();
  return count / seconds;
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
