// The jobs that an operator does by clicks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, check, follow, gateway, open, redis, send, site } from "../support.js";

const SIZES = [{ width: 1280, height: 900 }, { width: 390, height: 844 }];
const LEASE = "936da01f-9abd-4d9d-80c7-02af85c822a8";

/// Clicks a link of the navigation.
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
  assert.match(await row.innerText(), /alice@laptop[\s\S]*no end[\s\S]*ci-deploy\/7\): 3 ×[\s\S]*leased/);
  await check(page);
  // By keyboard. A part that has the focus is not replaced under it.
  await row.getByRole("link", { name: "Break" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Break the lease of deploy/production?" }).waitFor();
  assert.match(await page.getByRole("main").innerText(), /alice@laptop holds it/);
  await check(page);
  await page.getByLabel("Seconds until others can write").focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByText("The lease is broken.").waitFor();
  assert.equal((await send(blob, "PUT", { "user-agent": "ci-deploy/7" }, "new")).status, 200);
});

test("name the worst conflict of the last ten minutes", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  await send(`${at.service}/docs/plan.txt`, "PUT", {}, "one");
  const page = await open(await browser(t), at.console, { viewport: SIZES[1] });
  await go(page, "Conflicts");
  await page.getByText("No request has lost").waitFor();
  // The page is live, and asks for nothing.
  const requests = [];
  page.on("request", (request) => requests.push(request.resourceType()));
  await send(`${at.service}/docs/other.txt`, "PUT", { "if-match": '"x"' }, "two");
  for (let tries = 0; tries < 5; tries += 1) {
    await send(`${at.service}/docs/plan.txt`, "PUT", { "if-match": '"old"', "user-agent": "sync/2" }, "two");
  }
  const worst = page.getByRole("region", { name: "Worst paths" });
  await worst.getByText("412 × 5").waitFor();
  assert.deepEqual(requests.filter((type) => type !== "eventsource"), [], "requests of a page that is live");
  assert.ok(requests.length <= 1, "a stream that begins again and again");
  const [, first] = await worst.getByRole("row").allInnerTexts();
  assert.match(first, /\/docs\/plan\.txt\s+5\s+412 × 5\s+127\.0\.0\.1 × 5/);
  await worst.getByRole("link", { name: "/docs/plan.txt" }).click();
  const latest = page.getByRole("region", { name: "Latest conflicts" });
  await latest.getByText('if-match: "old"').first().waitFor();
  assert.equal(await latest.getByText("sync/2").count(), 5);
  assert.equal(await latest.getByText("/docs/other.txt").count(), 0);
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
  await page.getByText(/Not ready \(unavailable\): Redis refused the connection/).waitFor();
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
    await page.getByRole("link", { name: "notes/day.md" }).click();
    await check(page);
  }
  await ann.getByLabel("Text").fill("one, by Ann\ntwo\n");
  await ann.getByRole("button", { name: "Save" }).click();
  await ann.getByText("The blob is saved.").waitFor();
  await ben.getByLabel("Text").fill("one\ntwo, by Ben\n");
  await ben.getByRole("button", { name: "Save" }).click();
  await ben.getByText("was changed meanwhile").waitFor();
  const both = await ben.getByRole("region", { name: "Both versions" }).innerText();
  assert.match(both, /one, by Ann/);
  assert.match(both, /two, by Ben/);
  await check(ben);
  assert.equal(await (await send(`${at.service}/docs/notes/day.md`)).text(), "one, by Ann\ntwo\n");
  await ben.getByLabel("Text to save").fill("one, by Ann\ntwo, by Ben\n");
  await ben.getByRole("button", { name: "Save" }).click();
  await ben.getByText("The blob is saved.").waitFor();
  const merged = await send(`${at.service}/docs/notes/day.md`);
  assert.equal(await merged.text(), "one, by Ann\ntwo, by Ben\n");
  assert.deepEqual(["content-type", "x-meta-owner"].map((name) => merged.headers.get(name)), ["text/markdown", "ann"]);

  // A deletion asks first, and names the version that was shown, too.
  await ann.getByRole("link", { name: "Delete" }).click();
  await ann.getByRole("heading", { name: "Delete docs/notes/day.md?" }).waitFor();
  await check(ann);
  await ann.getByRole("button", { name: "Delete" }).click();
  await ann.getByText("412:").waitFor();
  await ben.getByRole("link", { name: "Delete" }).click();
  assert.equal((await send(`${at.service}/docs/notes/day.md`)).status, 200);
  await ben.getByRole("button", { name: "Delete" }).click();
  await ben.getByText("The blob is deleted.").waitFor();
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
  await page.getByText("The blob is created.").waitFor();
  const stored = await send(`${at.service}/docs/a%20b.bin`);
  assert.equal(stored.headers.get("content-type"), "application/x-test");
  assert.deepEqual([...new Uint8Array(await stored.arrayBuffer())], [0, 1, 255]);
  await page.goto(`${at.console}/blobs`);
  await upload();
  await page.getByText("exists already").waitFor();
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
  await page.getByLabel("URL", { exact: true }).fill("/mine");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByText("This is not a whole URL").waitFor();
  await lookUp("/mine");
  await page.getByText("Not cached (pass, private): the response says private").waitFor();
  await check(page);
  await lookUp("/ours");
  await page.getByText("fresh, status 200").waitFor();
  await check(page);
  await page.getByRole("button", { name: "Purge" }).click();
  await page.getByText("The responses are purged.").waitFor();
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
