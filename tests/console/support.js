// Gateways, browsers and the checks that every page must pass.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const BIN = process.env.IFMATCH_BIN;
const CHROMIUM = process.env.IFMATCH_CHROMIUM ?? "/usr/bin/chromium";
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** Limit of each wait, far beyond the expected time. */
export const LIMIT = 60_000;

/** Starts a gateway with these arguments. Returns the URLs of its service and its console. */
export async function gateway(test, args, env = {}) {
  assert.ok(BIN, "IFMATCH_BIN must name the gateway: run cargo xtask ci --only console");
  const folder = mkdtempSync(join(tmpdir(), "ifmatch-console-"));
  const fixed = args[0] === "serve" ? ["--listen-tables", "off", "--listen-s3", "off"] : [];
  const all = [...args, ...fixed, "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"];
  const process_ = spawn(BIN, all.map((arg) => arg.replace("FOLDER", folder)), { env: { PATH: process.env.PATH, ...env } });
  let output = "";
  const addresses = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`the gateway has not started within a minute: ${output}`)), LIMIT);
    const read = (text) => {
      output += text;
      const [, service] = /listening on (\S+)/.exec(output) ?? [];
      const [, console] = /console on (\S+)/.exec(output) ?? [];
      if (service && console) {
        clearTimeout(timer);
        resolve({ service, console });
      }
    };
    process_.stdout.on("data", read);
    process_.stderr.on("data", read);
    process_.on("exit", (code) => reject(new Error(`the gateway ended with ${code}: ${output}`)));
  });
  test.after(() => {
    process_.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  return { ...(await addresses), folder, process: process_ };
}

/** Starts a browser that is closed after the test. */
export async function browser(test) {
  const args = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
  args.push("--disable-component-update", "--disable-sync", "--no-sandbox");
  const started = await chromium.launch({ executablePath: CHROMIUM, args, timeout: LIMIT });
  test.after(() => started.close());
  return started;
}

/** Opens a page whose errors, dialogs and blocked scripts fail the test. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT);
  page.setDefaultNavigationTimeout(LIMIT);
  page.troubles = [];
  page.on("pageerror", (error) => page.troubles.push(String(error)));
  page.on("dialog", async (dialog) => {
    page.troubles.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  await page.goto(url);
  return page;
}

/** Checks that a page is accessible, in light and in dark, and that nothing of it acts. */
export async function check(page) {
  await page.waitForLoadState(); // a click waits for the answer, not for the style sheet
  assert.deepEqual(page.troubles, [], `trouble on ${page.url()}`);
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await findings(page), [], `axe on ${page.url()} in ${colorScheme}`);
  }
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${page.url()} is ${wide} pixels wider than the window`);
}

/** Returns the serious findings of axe. */
async function findings(page) {
  // In a world of its own, which the page's policy does not concern.
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  const expression = `${AXE}; axe.run(document, { iframes: false }).then((found) => JSON.stringify(found.violations
    .filter((violation) => ["serious", "critical"].includes(violation.impact))
    .map((violation) => [violation.id, violation.nodes.map((node) => node.html)])))`;
  const run = { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true };
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", run);
  await session.detach();
  assert.ok(!exceptionDetails, JSON.stringify(exceptionDetails));
  return JSON.parse(result.value);
}

/** Sends a request to a service. */
export async function send(url, method = "GET", headers = {}, body = undefined) {
  return fetch(url, { method, headers, body, signal: AbortSignal.timeout(LIMIT) });
}

/** Signs in, and returns the header field with the cookie. */
export async function signedIn(console, token) {
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  const signal = AbortSignal.timeout(LIMIT);
  const answer = await fetch(`${console}/sign-in`, { method: "POST", headers, body: `token=${token}`, redirect: "manual", signal });
  assert.equal(answer.status, 303, "the token is accepted");
  return { cookie: answer.headers.get("set-cookie").split(";")[0] };
}

/** Follows a page of the console. `next` returns the next event, or `null` after the last one. */
export async function follow(url, headers = {}) {
  const end = new AbortController();
  const signal = AbortSignal.any([end.signal, AbortSignal.timeout(LIMIT)]);
  const answer = await fetch(url, { headers: { accept: "text/event-stream", ...headers }, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  const next = async () => {
    for (;;) {
      const at = text.indexOf("\n\n");
      if (at >= 0) {
        const event = text.slice(0, at);
        text = text.slice(at + 2);
        return event;
      }
      const { done, value } = await reader.read();
      if (done) return null;
      text += value;
    }
  };
  return { status: answer.status, next, close: () => end.abort() };
}

/** Serves pages of another origin, or an upstream. */
export async function site(test, handle) {
  const server = createServer(handle);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/** Starts a Redis server. */
export async function redis(test) {
  const folder = mkdtempSync(join(tmpdir(), "ifmatch-console-redis-"));
  const port = await freePort();
  const server = spawn("redis-server", ["--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "yes"].map(String));
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("redis-server has not started within a minute")), LIMIT);
    server.stdout.on("data", (text) => {
      if (!/Ready to accept connections/.test(text)) return;
      clearTimeout(timer);
      resolve();
    });
    server.on("error", (error) => reject(new Error(`redis-server is missing (apt-get install redis-server): ${error}`)));
    server.on("exit", (code) => reject(new Error(`redis-server ended with ${code}`)));
  });
  const stop = () => server.kill("SIGKILL");
  test.after(() => {
    stop();
    rmSync(folder, { recursive: true, force: true });
  });
  return { url: `redis://127.0.0.1:${port}`, stop };
}

/** Returns a port that no process listens on. */
export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}
