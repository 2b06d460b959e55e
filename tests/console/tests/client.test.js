// The npm package's client against a gateway and a service: sixteen processes, sixteen pages, and the example's two windows.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { follow, merge } from "../../../examples/notes/merge.js";
import { browser, freePort, gateway, LIMIT, open, send, site } from "../support.js";

/** The client in one file, as the example serves it. The step `js` checks that it's the package's. */
const CLIENT = new URL("../../../examples/notes/client.js", import.meta.url);
const NOTES = process.env.IFMATCH_NOTES;
/** Limit of a race, far beyond its time on a busy machine. */
const RACE = 10 * LIMIT;
const WRITERS = 16;
const TIMES = 8;

/** What each writer does, in a process or in a page: adds its entries to one document, as many times as it says. */
const WRITE = `async (Client, url, name, times) => {
  const client = new Client({ patience: ${RACE} });
  let acknowledged = 0;
  for (let time = 0; time < times; time += 1) {
    await client.update(url, (document = { entries: [] }) => ({ entries: [...document.entries, name + "." + time] }));
    acknowledged += 1;
  }
  return acknowledged;
}`;

/** Checks that the document has each entry of each writer once. */
async function complete(url, acknowledged) {
  const { entries } = await (await send(url)).json();
  const expected = acknowledged.flatMap((times, writer) => Array.from({ length: times }, (_, time) => `w${writer}.${time}`));
  assert.equal(expected.length, WRITERS * TIMES, "each writer has written all it had to");
  assert.deepEqual([...entries].sort(), expected.sort(), "each acknowledged update is there, once");
}

test("of 16 processes' updates of one document none is lost", async (t) => {
  const { service } = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const folder = mkdtempSync(join(tmpdir(), "ifmatch-client-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const program = join(folder, "writer.mjs");
  writeFileSync(program, `import { Client } from ${JSON.stringify(CLIENT.href)};
console.log(await (${WRITE})(Client, process.argv[2], process.argv[3], Number(process.argv[4])));`);
  const document = `${service}/race/processes.json`;
  const run = async (_, writer) => {
    const args = [program, document, `w${writer}`, String(TIMES)];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: RACE });
    return Number(stdout);
  };
  await complete(document, await Promise.all(Array.from({ length: WRITERS }, run)));
});

test("of 16 pages' updates of one document none is lost, from another origin", async (t) => {
  const script = readFileSync(CLIENT);
  const pages = await site(t, (request, response) => {
    if (request.url === "/client.js") response.writeHead(200, { "content-type": "text/javascript" }).end(script);
    else response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>writer</title>");
  });
  const { service } = await gateway(t, ["serve", "--data", "FOLDER/data", "--cors-origin", pages]);
  const chromium = await browser(t);
  const document = `${service}/race/pages.json`;
  const write = async (_, writer) => {
    const page = await open(chromium, pages);
    page.setDefaultTimeout(RACE);
    const acknowledged = await page.evaluate(`import("/client.js").then(({ Client }) => (${WRITE})(Client, "${document}", "w${writer}", ${TIMES}))`);
    assert.deepEqual(page.troubles, []);
    return acknowledged;
  };
  await complete(document, await Promise.all(Array.from({ length: WRITERS }, write)));
});

test("processes in JavaScript and on the command line share locks and documents", async (t) => {
  const { Client } = await import(CLIENT.href);
  const { service } = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const client = new Client({ stamps: true, patience: RACE });
  const lock = `${service}/race/lock`;
  const command = (...args) =>
    promisify(execFile)(process.env.IFMATCH_BIN, ["lock", lock, ...args], { timeout: RACE }).then(
      ({ stdout }) => [0, stdout.trim()],
      ({ code, stdout }) => [code, stdout.trim()],
    );
  const print = ["--", "sh", "-c", "echo $IFMATCH_FENCE"];
  const first = await client.lock(lock, async (held) => {
    assert.deepEqual(await command("--wait", "0s", ...print), [75, ""], "the command line waits for the page's lock");
    return held.fence;
  });
  const [code, second] = await command("--wait", "1m", ...print);
  assert.ok(code === 0 && Number(second) === first + 1, `${code} ${second} after ${first}`);
  const third = await client.lock(lock, ({ fence }) => fence);
  assert.equal(third, first + 2);
});

test("a page is told what its server doesn't do", async (t) => {
  const script = readFileSync(CLIENT);
  const pages = await site(t, (_, response) => response.writeHead(200, { "content-type": "text/javascript" }).end(script));
  // It allows all that a page sends, and hides the tag.
  const hiding = await site(t, (request, response) => {
    const cors = { "access-control-allow-origin": "*", "access-control-allow-headers": "*", "access-control-allow-methods": "*" };
    response.writeHead(200, { ...cors, etag: '"v1"', "content-type": "application/json" }).end("{}");
  });
  const chromium = await browser(t);
  const page = await open(chromium, pages);
  const told = await page.evaluate(`import("/client.js").then(({ Client }) => new Client().read("${hiding}/a")).catch((error) => [error.kind, error.message])`);
  assert.deepEqual(told, ["refused", `${hiding}/a: this page can't read an ETag: the server must send one, and Access-Control-Expose-Headers: ETag`]);
});

/** Starts the example. Returns its address. */
async function notes(t) {
  assert.ok(NOTES, "IFMATCH_NOTES must name the example: run cargo xtask ci --only console");
  const folder = mkdtempSync(join(tmpdir(), "ifmatch-notes-"));
  const address = `127.0.0.1:${await freePort()}`;
  const process_ = spawn(NOTES, [address, `sqlite:${join(folder, "notes.db")}?mode=rwc`], { stdio: ["ignore", "ignore", "pipe"] });
  let output = "";
  process_.stderr.on("data", (text) => (output += text));
  t.after(() => {
    process_.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  for (const until = Date.now() + LIMIT; ; ) {
    const answers = await send(`http://${address}/health`).then((response) => response.ok, () => false);
    if (answers) return `http://${address}`;
    assert.ok(process_.exitCode === null && Date.now() < until, `the example has not started within a minute: ${output}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("two windows of the example edit one note, and nothing is lost", async (t) => {
  const url = await notes(t);
  const chromium = await browser(t);
  const anna = await open(chromium, url);
  const text = (page) => page.getByLabel("Text of the note");
  await anna.waitForFunction(() => location.hash !== "" && !document.querySelector("textarea").disabled);
  const bert = await open(chromium, anna.url());
  await bert.waitForFunction(() => !document.querySelector("textarea").disabled);
  await anna.waitForFunction(() => document.querySelector("textarea").value.endsWith("(the team)"));
  await agree();
  await text(anna).fill("Anna:\n-\nBert:\n(the team)");
  await agree();
  // Each types lines of their own, a key at a time, while the other does.
  const type = async (page, name, keys) => {
    for (let line = 0; line < 5; line += 1) {
      for (const key of keys) await text(page).press(key);
      await text(page).pressSequentially(`\n${name} ${line}`, { delay: 15 });
    }
  };
  await Promise.all([type(anna, "Anna", ["Control+Home", "End"]), type(bert, "Bert", ["Control+End", "ArrowUp", "End"])]);
  const both = await agree();
  const note = `${url}/v1/notes/${new URL(anna.url()).hash.slice(1)}`;
  const stored = await (await send(note, "GET", { authorization: "Bearer secret" })).json();
  assert.equal(stored.text, both, "what both show is stored");
  const lines = (name, order) => order.map((line) => `${name} ${line}`);
  const expected = ["Anna:", ...lines("Anna", [4, 3, 2, 1, 0]), "-", "Bert:", ...lines("Bert", [0, 1, 2, 3, 4]), "(the team)"];
  assert.deepEqual(both.split("\n"), expected, "each line is there");
  assert.deepEqual([anna.troubles, bert.troubles], [[], []]);

  /** Waits until both windows have saved and show the same text, and returns it. */
  async function agree() {
    for (const until = Date.now() + LIMIT; ; ) {
      const state = (page) => page.evaluate(() => [document.querySelector("#state").textContent, document.querySelector("#text").value]);
      const [[one, mine], [other, theirs]] = await Promise.all([anna, bert].map(state));
      if (one === "Saved" && other === "Saved" && mine === theirs) return mine;
      assert.ok(Date.now() < until, `the windows show the same text within a minute: ${JSON.stringify([one, mine, other, theirs])}`);
    }
  }
});

test("a merge keeps what both have changed", () => {
  for (const [base, mine, theirs, merged] of [
    ["a\nb\nc", "a\nx\nb\nc", "a\nb\nc\ny", "a\nx\nb\nc\ny"],
    ["a\nb", "b", "a\nb\nc", "b\nc"],
    ["a", "mine", "theirs", "theirs\nmine"],
    ["a", "same", "same", "same"],
    ["", "mine", "", "mine"],
    ["a\nb\nc", "a\nc", "a\nB\nc", "a\nB\nc"],
  ]) assert.equal(merge(base, mine, theirs), merged, JSON.stringify([base, mine, theirs]));
  assert.equal(follow("a\nb", "x\na\nb", 3), 5, "the caret stays at its line");
});
