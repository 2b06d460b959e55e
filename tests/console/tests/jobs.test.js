// The jobs that an operator does by clicks.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createServer } from "node:http";
import { test } from "node:test";
import { browser, check, follow, gateway, LIMIT, open, redis, send, site } from "../support.js";

const SIZES = [{ width: 1280, height: 900 }, { width: 390, height: 844 }];
const LEASE = "936da01f-9abd-4d9d-80c7-02af85c822a8";

/** Clicks a link of the navigation. */
const go = (page, name) => page.getByRole("navigation").getByRole("link", { name }).click();

test("find who blocks a deployment, and break the lease", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const blob = `${at.service}/deploy/production`;
  await send(blob, "PUT", {}, "state");
  const acquired = await send(`${blob}?lease`, "POST", { "lease-duration": "-1", "lease-holder": "alice@laptop", "lease-id": LEASE });
  assert.equal(acquired.status, 201, await acquired.text());
  for (let tries = 0; tries < 3; tries += 1) {
    const refused = await send(blob, "PUT", { "user-agent": "ci-deploy/7" }, "new");
    assert.equal(refused.status, 412);
  }
  const page = await open(await browser(t), at.console, { viewport: SIZES[0] });
  await go(page, "Leases");
  const row = page.getByRole("row", { name: /deploy\/production/ });
  assert.match(await row.innerText(), /alice@laptop\s+never expires\s+127\.0\.0\.1 \(ci-deploy\/7\): 3 refusals, last \d+ seconds? ago/);
  await check(page);
  // By keyboard. A part that has the focus is not replaced under it.
  await row.getByRole("link", { name: "Break" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Break the lease on deploy/production?" }).waitFor();
  assert.match(await page.getByRole("main").innerText(), /alice@laptop holds it. If you break it, alice@laptop loses write access and isn't notified./);
  await check(page);
  await page.getByLabel("Seconds until others can write").focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByText("Broke the lease on deploy/production.").waitFor();
  assert.equal((await send(blob, "PUT", { "user-agent": "ci-deploy/7" }, "new")).status, 200);
  // A holder without a name.
  const hint = page.getByText("A holder is unnamed if it sent no Lease-Holder");
  assert.equal(await hint.count(), 0);
  assert.equal((await send(`${blob}?lease`, "POST", { "lease-duration": "-1" })).status, 201);
  await hint.waitFor();
  await check(page);
});

test("name the worst conflict of the last ten minutes", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  await send(`${at.service}/docs/plan.txt`, "PUT", {}, "one");
  const page = await open(await browser(t), at.console, { viewport: SIZES[1] });
  await go(page, "Conflicts");
  await page.getByText("No conflicts in the last 10 minutes.").waitFor();
  // The page is live, and asks for nothing.
  const requests = [];
  page.on("request", (request) => requests.push(request.resourceType()));
  await send(`${at.service}/docs/other.txt`, "PUT", { "if-match": '"x"' }, "two");
  for (let tries = 0; tries < 5; tries += 1) {
    await send(`${at.service}/docs/plan.txt`, "PUT", { "if-match": '"old"', "user-agent": "sync/2" }, "two");
  }
  const worst = page.getByRole("table", { name: "Worst paths" });
  await worst.getByText("412 × 5").waitFor({ state: "attached" });
  assert.deepEqual(requests.filter((type) => type !== "eventsource"), [], "requests of a page that is live");
  assert.ok(requests.length <= 1, "a stream that begins again and again");
  const [, first] = await worst.getByRole("row").allInnerTexts();
  assert.match(first, /\/docs\/plan\.txt\s+5/);
  // The rest of a row is shown on demand.
  assert.ok(!first.includes("412 × 5"), first);
  await worst.getByRole("button", { name: "Details of /docs/plan.txt" }).click();
  assert.match((await worst.getByRole("row").allInnerTexts())[1], /412 × 5\s+sync\/2 × 5/);
  await worst.getByRole("link", { name: "/docs/plan.txt" }).click();
  // One row for the client and the reason.
  const latest = page.getByRole("table", { name: "Latest conflicts" });
  await latest.getByText("sync/2").first().waitFor();
  await latest.getByRole("button", { name: "Details of /docs/plan.txt" }).click();
  const rows = await latest.getByRole("row").allInnerTexts();
  assert.equal(rows.length, 2);
  assert.match(rows[1], /PUT \/docs\/plan\.txt\s+sync\/2\s+127\.0\.0\.1\s+5\s+\d+ seconds? ago\s+if-match: \s*old\s/);
  assert.equal(await latest.getByText("/docs/other.txt").count(), 0);
  await check(page);
});

test("of eight clients behind one address, name the one with most conflicts", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  await send(`${at.service}/state`, "PUT", {}, "one");
  const lose = (agent, path) => send(`${at.service}${path}`, "PUT", { "if-match": '"old"', "user-agent": agent }, "x");
  // Two have the same product, and the last one has most conflicts.
  const agents = [...Array(6).keys()].map((patch) => `HashiCorp Terraform/1.9.${patch} (+https://www.terraform.io)`);
  agents.push("editor/5.0 (ann)", "editor/5.0 (ben)");
  for (const [at, agent] of agents.entries()) {
    for (let tries = 0; tries <= at; tries += 1) await lose(agent, tries ? "/box/state" : "/box/other");
  }
  const page = await open(await browser(t), at.console, { viewport: SIZES[1] });
  await go(page, "Conflicts");
  const clients = page.getByRole("table", { name: "Clients" });
  await clients.waitFor();
  const rows = (await clients.getByRole("row").allInnerTexts()).slice(1).map((row) => row.replace(/\s+/g, " ").trim());
  assert.deepEqual(rows, [
    "editor/5.0 (ben) 127.0.0.1 8",
    "editor/5.0 (ann) 127.0.0.1 7",
    ...[5, 4, 3, 2, 1, 0].map((patch) => `Terraform/1.9.${patch} 127.0.0.1 ${patch + 1}`),
  ]);
  // All of them are in the window of a telephone.
  const last = await clients.getByRole("row").last().boundingBox();
  assert.ok(last.y + last.height <= SIZES[1].height, JSON.stringify(last));
  await check(page);
  // Its conflicts alone, and where.
  await clients.getByRole("link", { name: "Terraform/1.9.5" }).click();
  await page.getByRole("heading", { name: "Latest from Terraform/1.9.5 at 127.0.0.1" }).waitFor();
  const paths = page.getByRole("table", { name: "Worst paths" }).getByRole("row");
  assert.deepEqual((await paths.allInnerTexts()).slice(1).map((row) => row.replace(/\s+/g, " ").trim()), ["/box/state 5", "/box/other 1"]);
  assert.equal(await page.getByRole("table", { name: "Latest conflicts" }).getByRole("row").count(), 3);
  await check(page);
  // Who loses on one path.
  await page.goto(`${at.console}/conflicts?path=%2Fbox%2Fother`);
  assert.equal(await clients.getByRole("row").count(), 9);
  // Two with the same product are told apart everywhere.
  const words = async (row) => (await row.textContent()).replace(/\s+/g, " ");
  assert.match(await words(page.locator("#worst tbody tr").first()), /editor\/5\.0 \(ben\) × 7 ?editor\/5\.0 \(ann\) × 6/);
  assert.match(await words(page.locator("#latest tbody tr").first()), /editor\/5\.0 \(ben\)/);
  // One of them is chosen, the others on this path stay.
  await clients.getByRole("link", { name: "editor/5.0 (ann)" }).click();
  await page.getByRole("heading", { name: "Latest from editor/5.0 (ann) at 127.0.0.1 on /box/other" }).waitFor();
  assert.equal(await clients.getByRole("row").count(), 9);
  assert.deepEqual(await page.locator("#worst .chosen .title").allInnerTexts(), ["/box/other"]);
  assert.equal(await page.locator("#latest tbody tr").count(), 1);
  // JSON endpoints.
  const query = new URLSearchParams({ client: "127.0.0.1", user_agent: "editor/5.0 (ann)", path: "/box/other" });
  const found = await (await send(`${at.service}/-/conflicts?${query}`)).json();
  assert.deepEqual([found.recent.length, found.recent[0].user_agent, found.clients.length], [1, "editor/5.0 (ann)", 8]);
  assert.deepEqual(found.worst.map(({ path }) => path), ["/box/state", "/box/other"]);
  assert.equal((await send(`${at.service}/-/conflicts?client=x`)).status, 400);
});

test("a list that is cut says so", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  for (let number = 0; number < 101; number += 1) {
    await send(`${at.service}/box/${number}`, "PUT", { "if-match": '"old"', "user-agent": `job/${Math.min(number, 11)}` }, "x");
  }
  const page = await open(await browser(t), `${at.console}/conflicts`, { viewport: SIZES[0] });
  const clients = page.locator("#clients");
  assert.ok(!(await clients.getByText("job/9", { exact: true }).isVisible()));
  await clients.getByText("2 more").click();
  assert.equal(await clients.locator("tbody tr:visible").count(), 12);
  for (const list of ["#worst", "#latest"]) await page.locator(list).getByText("100 of 101").waitFor();
  assert.equal(await clients.getByText(" of ").count(), 0, "a list that is complete");
  await check(page);
});

test("the latest conflicts stay in place while they are read", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const lose = (path) => send(`${at.service}${path}`, "PUT", { "if-match": '"old"' }, "x");
  await lose("/docs/one");
  const page = await open(await browser(t), `${at.console}/conflicts`, { viewport: SIZES[0] });
  const latest = page.locator("#latest");
  await latest.getByText("/docs/one").hover();
  await lose("/docs/two");
  await lose("/docs/three");
  const fresh = page.getByRole("button", { name: "2 new" });
  await fresh.waitFor();
  assert.equal(await latest.getByText("/docs/two").count(), 0);
  // By the keyboard: the list is no longer read once the pointer leaves it.
  await fresh.press("Enter");
  await latest.getByText("/docs/two").waitFor();
  assert.equal(await page.getByRole("button", { name: "new" }).count(), 0);
  await latest.getByText("/docs/one").hover();
  await lose("/docs/four");
  await page.getByRole("button", { name: "1 new" }).waitFor();
  await page.mouse.move(0, 0);
  await latest.getByText("/docs/four").waitFor();
});

test("a server that has not responded since it failed is never in use", async (t) => {
  const handle = (_, response) => response.end("hello");
  const upstream = createServer(handle);
  const listen = (port) => new Promise((resolve) => upstream.listen(port, "127.0.0.1", resolve));
  await listen(0);
  const { port } = upstream.address();
  const stop = () => new Promise((resolve) => {
    upstream.close(resolve);
    upstream.closeAllConnections();
  });
  t.after(stop);
  const at = await gateway(t, ["proxy", "--upstream", `http://127.0.0.1:${port}`, "--breaker-pause", "1s"]);
  const page = await open(await browser(t), at.console, { viewport: SIZES[0] });
  const card = page.getByRole("list", { name: "Components" }).getByRole("listitem").filter({ hasText: "Upstreams" });
  assert.equal((await send(at.service)).status, 200);
  await card.getByText("OK", { exact: true }).waitFor();
  await stop();
  assert.equal((await send(at.service)).status, 502);
  // The pause of the breaker is over, and no request has asked the server again.
  await card.getByText("Failing", { exact: true }).waitFor();
  assert.match(await card.innerText(), /none in use[\s\S]*failed \d+ seconds? ago: it refused the connection[\s\S]*No request to it has succeeded since/);
  assert.ok(!/OK/.test(await card.innerText()));
  await check(page);
  await listen(port);
  assert.equal((await send(at.service)).status, 200);
  await card.getByText("OK", { exact: true }).waitFor();
});

test("a page that cannot be read says what is down, and stays on its screen", async (t) => {
  const register = await redis(t);
  const at = await gateway(t, ["serve", "--store", "memory://", "--register", register.url, "--register-may-lose"]);
  await send(`${at.service}/docs/a.txt`, "PUT", { "content-type": "text/plain" }, "one");
  const page = await open(await browser(t), `${at.console}/leases`, { viewport: SIZES[1] });
  await page.getByText("No leases").waitFor();
  register.stop();
  await page.getByText("can't be updated").waitFor();
  for (const [path, screen, title] of [
    ["/leases?prefix=docs%2F", "Leases", "Leases can't be read"],
    ["/leases/break?path=docs%2Fa.txt", "Leases", "Leases can't be read"],
  ]) {
    const response = await page.goto(at.console + path);
    assert.equal(response.status(), 503, path);
    await page.getByRole("heading", { name: title }).waitFor();
    assert.match(await page.title(), new RegExp(`^${title} · `));
    assert.equal(await page.locator("nav [aria-current]").innerText(), screen);
    const text = await page.getByRole("main").innerText();
    assert.match(text, /The register is down, noticed \d+ seconds? ago\. .*refused/);
    assert.match(text, /docs\//);
    assert.ok(text.includes("Reading failed.") && !text.includes("Nothing was changed"), text);
    await check(page);
  }
  const listed = spawnSync(process.env.IFMATCH_BIN, ["lease", "list", "--url", at.service], { encoding: "utf8", timeout: LIMIT });
  assert.equal(listed.status, 1, listed.stderr);
  assert.match(listed.stderr, /can't list leases, because the register is down: .*refused/);
  const missing = await page.goto(`${at.console}/nowhere`);
  assert.equal(missing.status(), 404);
  await page.getByRole("heading", { name: "There's no such page" }).waitFor();
});

test("an editor learns of a newer version while it is open", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const blob = `${at.service}/docs/a.txt`;
  await send(blob, "PUT", { "content-type": "text/plain" }, "one\n");
  const page = await open(await browser(t), `${at.console}/blob?path=docs%2Fa.txt`, { viewport: SIZES[1] });
  await page.getByLabel("Text").fill("mine\n");
  const notice = page.getByText("Someone saved a newer version");
  assert.ok(!(await notice.isVisible()));
  await send(blob, "PUT", { "content-type": "text/plain" }, "theirs\n");
  await notice.waitFor();
  assert.equal(await page.getByLabel("Text").inputValue(), "mine\n");
  await check(page);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/someone saved a newer version \d+ seconds? ago/).waitFor();
  await check(page);
});

test("see why the service is not ready", async (t) => {
  const register = await redis(t);
  const flags = ["--store", "memory://", "--register", register.url, "--register-may-lose"];
  const at = await gateway(t, ["serve", ...flags]);
  const page = await open(await browser(t), at.console, { viewport: SIZES[0] });
  await page.getByText("Ready", { exact: true }).waitFor();
  await check(page);
  await page.getByRole("row", { name: /--store memory:\/\/ flag/ }).waitFor();
  register.stop();
  await page.getByText("Not ready: the register is down").waitFor();
  const card = page.getByRole("list", { name: "Components" }).getByRole("listitem").first();
  assert.match(await card.innerText(), /^Register\s+Down[\s\S]*refused[\s\S]*Next: Bring the --register server back up/i);
  // Only what was set is shown, until the defaults are asked for.
  assert.ok(!(await page.getByText("--head-timeout").isVisible()));
  await page.getByText(/^\d+ defaults$/).click();
  assert.ok(await page.getByText("--head-timeout").isVisible());
  await check(page);
});

test("resolve an edit conflict of two browsers", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const headers = { "content-type": "text/markdown", "x-meta-owner": "ann" };
  await send(`${at.service}/docs/notes/day.md`, "PUT", headers, "one\ntwo\n");
  const chromium = await browser(t);
  const [ann, ben] = [await open(chromium, at.console, { viewport: SIZES[0] }), await open(chromium, at.console, { viewport: SIZES[1] })];
  for (const page of [ann, ben]) {
    await go(page, "Blobs");
    await page.getByRole("link", { name: "docs", exact: true }).click();
    await page.getByRole("link", { name: "notes/", exact: true }).click();
    await check(page);
    await page.getByRole("link", { name: "day.md" }).click();
    await check(page);
  }
  await ann.getByLabel("Text").fill("one, by Ann\ntwo\n");
  await ann.getByRole("button", { name: "Save" }).click();
  await ann.getByText("Blob saved.").waitFor();
  await ben.getByLabel("Text").fill("one\ntwo, by Ben\n");
  await ben.getByRole("button", { name: "Save" }).click();
  await ben.getByText("changed while you were editing").waitFor();
  const both = await ben.getByRole("region", { name: "Merged version" }).innerText();
  assert.match(both, /Conflict 1 of 1\s+Base\s+one\s+two\s+Theirs\s+one, by Ann\s+two\s+Yours\s+one\s+two, by Ben/);
  await check(ben);
  assert.equal(await (await send(`${at.service}/docs/notes/day.md`)).text(), "one, by Ann\ntwo\n");
  await ben.getByLabel("Keep theirs").check();
  await ben.getByRole("button", { name: "Edit merged version" }).click();
  assert.equal(await ben.getByLabel("Merged text").inputValue(), "one, by Ann\ntwo\n");
  await check(ben);
  await ben.getByLabel("Merged text").fill("one, by Ann\ntwo, by Ben\n");
  await ben.getByRole("button", { name: "Save merged version" }).click();
  await ben.getByText("Blob saved.").waitFor();
  const merged = await send(`${at.service}/docs/notes/day.md`);
  assert.equal(await merged.text(), "one, by Ann\ntwo, by Ben\n");
  assert.deepEqual(["content-type", "x-meta-owner"].map((name) => merged.headers.get(name)), ["text/markdown", "ann"]);

  // A deletion asks first, and names the version that was shown, too.
  await ann.getByRole("link", { name: "Delete" }).click();
  await ann.getByRole("heading", { name: "Delete docs/notes/day.md?" }).waitFor();
  await check(ann);
  await ann.getByRole("button", { name: "Delete" }).click();
  await ann.getByText("Couldn't delete: someone saved a newer version").waitFor();
  await check(ann);
  await ben.getByRole("link", { name: "Delete" }).click();
  assert.equal((await send(`${at.service}/docs/notes/day.md`)).status, 200);
  await ben.getByRole("button", { name: "Delete" }).click();
  await ben.getByText("Blob deleted.").waitFor();
  assert.equal((await send(`${at.service}/docs/notes/day.md`)).status, 404);
});

test("upload a file, but not over another one", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  // The forms need no scripts.
  const page = await open(await browser(t), `${at.console}/blobs`, { viewport: SIZES[1], javaScriptEnabled: false });
  const upload = async () => {
    await page.getByLabel("Container and name").fill("docs/a b.bin");
    await page.getByLabel("or a file").setInputFiles({ name: "x.bin", mimeType: "application/x-test", buffer: Buffer.from([0, 1, 255]) });
    await page.getByRole("button", { name: "Create" }).click();
  };
  await upload();
  await page.getByText("Blob created.").waitFor();
  const stored = await send(`${at.service}/docs/a%20b.bin`);
  assert.equal(stored.headers.get("content-type"), "application/x-test");
  assert.deepEqual([...new Uint8Array(await stored.arrayBuffer())], [0, 1, 255]);
  await page.goto(`${at.console}/blobs`);
  await upload();
  // The error is next to the form, which keeps what was entered.
  await page.getByText("docs/a b.bin already exists. Choose another name.").waitFor();
  assert.equal(await page.getByLabel("Container and name").inputValue(), "docs/a b.bin");
});

test("find out why a URL is not cached, and purge one that is", async (t) => {
  const upstream = await site(t, (request, response) => {
    const isPrivate = request.url === "/mine";
    response.writeHead(200, { "cache-control": isPrivate ? "private" : "max-age=600", "content-type": "text/plain" });
    response.end("hello");
  });
  const at = await gateway(t, ["proxy", "--upstream", upstream]);
  const hosted = new URL(at.service).host;
  for (const path of ["/mine", "/ours", "/ours"]) await (await send(`${at.service}${path}`)).text();
  const page = await open(await browser(t), at.console, { viewport: SIZES[1] });
  await go(page, "Cache");
  const lookUp = async (path) => {
    await page.getByLabel("URL", { exact: true }).fill(`http://${hosted}${path}`);
    await page.getByRole("button", { name: "Look up" }).click();
  };
  await page.getByLabel("URL", { exact: true }).fill("mine");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByText("This isn't a complete URL").waitFor();
  // A path is enough.
  await page.getByLabel("URL", { exact: true }).fill("/mine");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByText("Not cached (pass, private)").waitFor();
  assert.equal(await page.getByLabel("URL", { exact: true }).inputValue(), `http://${hosted}/mine`);
  await lookUp("/mine");
  await page.getByText("Not cached (pass, private): the response says private").waitFor();
  await check(page);
  await lookUp("/ours");
  await page.getByText("fresh, status 200").waitFor();
  await check(page);
  await page.getByText("33.3% since the start").waitFor();
  await page.getByRole("button", { name: "Purge 1 response" }).click();
  await page.getByText("Purged 1 response.").waitFor();
  await page.getByText("Nothing is stored").waitFor();
});

test("a page is sent when it has changed, and the console is no client", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  await send(`${at.service}/c/a`, "PUT", {}, "one");
  await send(`${at.service}/c/a?lease`, "POST", { "lease-duration": "-1", "lease-holder": "ann" });
  await send(`${at.service}/c/a`, "PUT", {}, "two");
  const total = async () => (await (await send(`${at.service}/-/overview`)).json()).requests.total;
  const before = await total();
  for (let views = 0; views < 5; views += 1) await (await send(at.console)).text();
  assert.ok((await total()) - before <= 1, "views of pages are requests of clients");
  for (const path of ["/conflicts", "/leases"]) {
    const stream = await follow(at.console + path);
    assert.match(await stream.next(), /^event: page\n/);
    // A comment comes after a while without a change, although the ages of conflicts have grown.
    assert.equal(await stream.next(), ":", path);
    await send(`${at.service}/c/a`, "PUT", {}, "three");
    assert.match(await stream.next(), /^event: page\n/);
    stream.close();
  }
});

test("merge what two operators changed, without scripts", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const blob = `${at.service}/docs/list.txt`;
  const lines = (...changed) => [...Array(20).keys()].map((at) => `${changed[at] ?? `line ${at}`}\n`).join("");
  const headers = { "content-type": "text/plain" };
  await send(blob, "PUT", headers, lines());
  const page = await open(await browser(t), `${at.console}/blob?path=docs%2Flist.txt`, { viewport: SIZES[0], javaScriptEnabled: false });
  const theirs = lines("theirs", undefined, "their two");
  await send(blob, "PUT", headers, theirs);
  // Changes of different lines need no choice.
  await page.getByLabel("Text").fill(lines(...Array(19), "mine"));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("don't overlap").waitFor();
  await page.getByText(/unchanged lines/).waitFor();
  assert.equal(await page.getByRole("radio").count(), 0);
  await page.getByRole("button", { name: "Save merged version" }).click();
  await page.getByText("Blob saved.").waitFor();
  assert.equal(await (await send(blob)).text(), theirs.replace("line 19", "mine"));

  // Changes of the same line do, and what was chosen stays chosen if another writer is faster once more.
  await page.goto(`${at.console}/blob?path=docs%2Flist.txt`);
  const start = await page.getByLabel("Text").inputValue();
  await send(blob, "PUT", headers, start.replace("line 5", "their five"));
  await page.getByLabel("Text").fill(start.replace("line 5", "my five").replace("line 10", "my ten"));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("1 conflict needs your choice").waitFor();
  await page.getByLabel("Keep both, theirs first").check();
  await send(blob, "PUT", headers, start.replace("line 5", "their five").replace("line 15", "their fifteen"));
  await page.getByRole("button", { name: "Save merged version" }).click();
  await page.getByText("While you were merging, someone saved again.").waitFor();
  assert.ok(await page.getByLabel("Keep both, theirs first").isChecked());
  await page.getByRole("button", { name: "Save merged version" }).click();
  await page.getByText("Blob saved.").waitFor();
  const expected = start.replace("line 5", "their five\nmy five").replace("line 10", "my ten").replace("line 15", "their fifteen");
  assert.equal(await (await send(blob)).text(), expected);
});

test("a leased blob names its holder, and a refusal keeps the text", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const blob = `${at.service}/docs/a.txt`;
  const acquire = (url, holder, seconds) => send(`${url}?lease`, "POST", { "lease-duration": seconds, "lease-holder": holder });
  await send(blob, "PUT", { "content-type": "text/plain" }, "one");
  const page = await open(await browser(t), `${at.console}/blob?path=docs%2Fa.txt`, { viewport: SIZES[1] });
  await acquire(blob, "alice@laptop", "-1");
  await page.getByLabel("Text").fill("my work");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Couldn't save: alice@laptop holds a lease on this blob.").waitFor();
  assert.equal(await page.getByLabel("Text").inputValue(), "my work");
  await check(page);
  await page.goto(`${at.console}/blob?path=docs%2Fa.txt`);
  await page.getByText("alice@laptop holds a lease on this blob. Saving and deleting fail").waitFor();
  await page.getByRole("link", { name: "Delete" }).click();
  await page.getByText("alice@laptop holds a lease").waitFor();

  // Its conflicts name and link the holder.
  await send(blob, "PUT", {}, "x");
  await page.goto(`${at.console}/conflicts`);
  await page.locator("#latest").getByRole("button", { name: "Details of /docs/a.txt" }).first().click();
  await page.locator("#latest").getByRole("link", { name: "alice@laptop" }).first().click();
  await page.waitForURL(/leases\?prefix=docs%2Fa\.txt/);

  // The lease that keeps most clients waiting is first, and one that has expired is hidden.
  for (const name of ["0-free", "0-short"]) {
    await send(`${at.service}/docs/${name}`, "PUT", {}, "x");
    await acquire(`${at.service}/docs/${name}`, "bob", name === "0-free" ? "-1" : "15");
  }
  await page.goto(`${at.console}/leases`);
  await page.getByText("Show 1 expired or released").waitFor();
  const paths = page.locator("#leases .title");
  assert.deepEqual(await paths.allInnerTexts(), ["docs/a.txt", "docs/0-free"]);
  // The action is in the window, and beside the path.
  const [path, action] = await Promise.all([paths.first().boundingBox(), page.getByRole("link", { name: "Break" }).first().boundingBox()]);
  assert.ok(action.x + action.width <= 390 && action.y < path.y + path.height, JSON.stringify([path, action]));
  // Filter as you type.
  await page.getByLabel("Path starts with").fill("FREE");
  assert.deepEqual((await paths.filter({ visible: true }).allInnerTexts()), ["docs/0-free"]);
  await page.getByLabel("Path starts with").fill("");
  await page.getByRole("link", { name: "Show 1 expired" }).click();
  await page.getByText("docs/0-short").waitFor();
  await check(page);
});

test("names are decoded, tags short and times relative", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const url = `${at.service}/docs/plans/${encodeURIComponent("Übersicht 100%.md")}`;
  const tag = (await send(url, "PUT", { "content-type": "text/plain" }, "x")).headers.get("etag");
  await send(url, "PUT", { "if-match": '"an-old-version-of-it"' }, "y");
  const chromium = await browser(t);
  const page = await open(chromium, `${at.console}/conflicts`, { viewport: SIZES[0], permissions: ["clipboard-read", "clipboard-write"] });
  await page.locator("#latest").getByText("PUT /docs/plans/Übersicht 100%.md").waitFor();
  await page.locator("#worst").getByRole("link", { name: "/docs/plans/Übersicht 100%.md" }).click();
  await page.waitForURL(/path=/);
  assert.equal(await page.locator("#latest tbody tr").count(), 1);
  assert.match(await page.locator("#latest time").getAttribute("title"), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/);
  await page.getByLabel("Path", { exact: true }).fill("/docs/other");
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByText("No conflicts on /docs/other.").waitFor();

  await page.goto(`${at.console}/blobs?path=docs%2Fplans%2F`);
  const row = page.getByRole("row", { name: /^Übersicht 100%.md/ });
  assert.match(await row.innerText(), /1 byte\s+text\/plain/);
  assert.equal(await row.locator("code").innerText(), tag.slice(1, 9));
  await row.getByRole("button", { name: "Copy" }).click();
  await row.getByText("Copied").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), tag);
});

test("a text that is marked stays so until the mark is gone", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const lose = (name) => send(`${at.service}/docs/${name}`, "PUT", { "if-match": '"old"' }, "x");
  await lose("one");
  const page = await open(await browser(t), `${at.console}/conflicts`, { viewport: SIZES[0] });
  const latest = page.locator("#latest");
  // The first update comes after the page is loaded.
  await lose("control");
  await latest.getByText("/docs/control").waitFor();
  await page.evaluate(() => {
    const cell = [...document.querySelectorAll("#latest td")].find((cell) => cell.innerText.includes("/docs/one"));
    getSelection().selectAllChildren(cell);
  });
  const marked = () => page.evaluate(() => getSelection().toString().trim());
  const before = await marked();
  assert.match(before, /docs\/one/);
  await lose("two");
  // Another part of the page, which is not marked, is updated.
  await page.locator("#worst").getByText("/docs/two").waitFor();
  assert.equal(await marked(), before);
  assert.equal(await latest.getByText("/docs/two").count(), 0);
  await page.evaluate(() => getSelection().removeAllRanges());
  await latest.getByText("/docs/two").waitFor();
});
