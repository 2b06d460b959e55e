// Requests over persistent connections, one at a time on each, and what they cost.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";

/** Sends a request, and reads the answer to its end. */
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

/** Returns the requests per second of `connections` clients. `once(agent, number of the client)` sends a client's request. */
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

/** Returns the CPU time of a process in ms, its own and the system's for it. */
export function cpuTime(pid) {
  const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  const ticks = Number(execFileSync("getconf", ["CLK_TCK"]).toString());
  return ((Number(fields[11]) + Number(fields[12])) * 1_000) / ticks;
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
