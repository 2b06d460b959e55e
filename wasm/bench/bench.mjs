// Compares the Worker with others on the same runtime, by rate and by the CPU time of the runtime's process: interleaved rounds, medians,
// ratios. Each runs in a process of its own, with miniflare's R2 in it.
//   node bench.mjs --modules DIR [--quick]
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";

import { Miniflare } from "../miniflare/node_modules/miniflare/dist/src/index.js";
import { modules } from "../miniflare/modules.mjs";
import { COMPATIBILITY_DATE, options, urls } from "../miniflare/options.mjs";
import { ask, cpuTime, median, rate } from "./load.mjs";

const { values } = parseArgs({ options: { modules: { type: "string" }, quick: { type: "boolean", default: false } } });
const ROUNDS = values.quick ? 3 : 7;
const here = import.meta.dirname;
const SMALL = Buffer.alloc(1024, "x");
const LARGE = Buffer.alloc(64 * 1024 * 1024, "x");

// Returns the options of a Worker in JavaScript, with Hono if it imports that.
function script(name) {
  const text = fs.readFileSync(path.join(here, "workers", `${name}.mjs`), "utf8");
  const contents = text.replace('from "hono"', 'from "/hono/index.js"').replace('from "hono/etag"', 'from "/hono/middleware/etag/index.js"');
  const hono = contents === text ? [] : modules(path.resolve(here, "../js/node_modules/hono/dist"), "index.js", "/hono");
  return {
    host: "127.0.0.1",
    port: 0,
    cf: false,
    telemetry: { enabled: false },
    workers: [{
      name,
      modulesRoot: "/",
      modules: [{ type: "ESModule", path: "/worker.js", contents }, ...hono],
      compatibilityDate: COMPATIBILITY_DATE,
      r2Buckets: { BUCKET: "blobs" },
      unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
    }],
  };
}

const runtimes = {};
const at = {};
const pids = {};
async function start(name, settings, find) {
  runtimes[name] = new Miniflare(settings);
  at[name] = new URL("/bench/", await find(runtimes[name]));
  const running = execFileSync("pgrep", ["-P", String(process.pid), "workerd"]).toString().trim().split("\n");
  pids[name] = running.find((pid) => !Object.values(pids).includes(pid));
}

const direct = (name) => async (runtime) => {
  await runtime.ready;
  return runtime.unsafeGetDirectURL(name);
};

/** Runs subjects in turn, round by round, and returns the rates of each, and the CPU times in ms per request. */
async function measure(subjects, connections, count) {
  const measured = Object.fromEntries(Object.keys(subjects).map((name) => [name, { rates: [], cpu: [] }]));
  for (const once of Object.values(subjects)) await rate(connections, Math.ceil(count / 4), once);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [name, once] of Object.entries(subjects)) {
      const before = cpuTime(pids[name]);
      measured[name].rates.push(await rate(connections, count, once));
      measured[name].cpu.push((cpuTime(pids[name]) - before) / count);
    }
  }
  return measured;
}

function check(answer, status, what) {
  if (answer.status !== status) throw new Error(`${what}: ${answer.status} in place of ${status}`);
  return answer;
}

const spread = (all, digits) => `${median(all).toFixed(digits)} (${Math.min(...all).toFixed(digits)}–${Math.max(...all).toFixed(digits)})`;
const titles = { ifmatch: "the Worker", remembering: "the Worker, remembering", hono: "Hono", plain: "plain JavaScript" };
const comparisons = [];
/** Reports a measurement, and compares the first subject with the others. */
function report(title, measured, unit = "/s", scale = 1) {
  const [[, ours], ...others] = Object.entries(measured);
  for (const [name, { rates, cpu }] of Object.entries(measured)) {
    console.log(`| ${title} | ${titles[name]} | ${spread(rates.map((rate) => rate * scale), 0)} ${unit} | ${spread(cpu, 2)} |`);
  }
  const ratios = (a, b) => spread(a.map((value, round) => value / b[round]), 2);
  for (const [name, { rates, cpu }] of others) {
    comparisons.push(`| ${title} / ${titles[name]} | ${ratios(ours.rates, rates)} | ${ratios(ours.cpu, cpu)} |`);
  }
}

try {
  await start("ifmatch", options({ folder: path.resolve(values.modules) }), async (runtime) => (await urls(runtime)).blobs);
  const remembering = options({ folder: path.resolve(values.modules), bindings: { IFMATCH_MAX_STALENESS: "60" } });
  await start("remembering", remembering, async (runtime) => (await urls(runtime)).blobs);
  await start("plain", script("plain"), direct("plain"));
  await start("hono", script("hono"), direct("hono"));

  const put = (name, key, body, headers) => (agent) => ask(agent, new URL(key, at[name]), { method: "PUT", body, headers });
  const tags = {};
  for (const name of Object.keys(at)) {
    const written = await put(name, "small", SMALL)(undefined);
    if (written.status >= 300) throw new Error(`${name} does not take a body: ${written.status}`);
    tags[name] = (await ask(undefined, new URL("small", at[name]))).headers.etag;
  }

  console.log("| what | server | rate | CPU ms per request |\n|---|---|---|---|");
  const count = values.quick ? 200 : 1500;
  const read = (name, status, headers) => async (agent) => check(await ask(agent, new URL("small", at[name]), { headers }), status, name);
  const names = ["ifmatch", "plain", "hono"];
  const each = (of, subject) => Object.fromEntries(of.map((name) => [name, subject(name)]));
  const unchanged = await measure(each(["remembering", ...names], (name) => read(name, 304, { "if-none-match": tags[name] })), 8, count);
  const { remembering: remembered, ...others } = unchanged;
  report("304", others);
  report("304, remembered", { remembering: remembered, plain: others.plain, hono: others.hono });
  report("GET 1 KiB", await measure(each(names, (name) => read(name, 200, {})), 8, count));

  // Each client replaces its own blob if it is unchanged.
  const conditional = (name) => {
    const known = [];
    return async (agent, number) => {
      const headers = known[number] ? { "if-match": known[number] } : {};
      const answer = await ask(agent, new URL(`own-${number}`, at[name]), { method: "PUT", body: SMALL, headers });
      if (answer.status >= 300) throw new Error(`${name}: ${answer.status}`);
      known[number] = answer.headers.etag;
    };
  };
  report("PUT 1 KiB with If-Match", await measure(each(["ifmatch", "plain"], conditional), 8, Math.ceil(count / 2)));
  // The runtime may close a connection after a large body.
  const upload = (name) => async () => {
    const answer = await put(name, "large", LARGE)(false);
    if (answer.status >= 300) throw new Error(`${name}: ${answer.status}`);
  };
  report("PUT 64 MiB", await measure(each(["ifmatch", "plain"], upload), 1, 2), "MiB/s", 64);
} finally {
  console.log(`\n| ratio, round by round | of the rates | of the CPU times |\n|---|---|---|\n${comparisons.join("\n")}`);
  await Promise.all(Object.values(runtimes).map((runtime) => runtime.dispose()));
}
