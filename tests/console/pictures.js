// Takes the pictures of docs/console.md: each screen at two widths, with data as in an operator's day. It takes ten minutes, since the
// plots show that time.
import { join } from "node:path";
import { browser, gateway, open, send, site } from "./support.js";

const [, , folder, darkFolder] = process.argv;
if (!folder) throw new Error("name the folder for the pictures, and one for dark ones if you like: node pictures.js ../../docs/images");

const MINUTES = 10;

const WIDE = { width: 1100, height: 720 };
const NARROW = { width: 390, height: 720 };
const ends = [];
const test = { after: (end) => ends.push(end) };

const chromium = await browser(test);
const blobs = await gateway(test, ["serve", "--data", "FOLDER/data"]);
const put = (path, headers, body) => send(blobs.service + path, "PUT", headers, body);
await put("/docs/plan/week.md", { "content-type": "text/markdown" }, "# Week 48\n\n- Monday: release\n- Tuesday: rest\n- Wednesday: plan\n");
await put("/docs/plan/month.md", { "content-type": "text/markdown" }, "# November\n");
await put("/docs/logo.txt", {}, "if-match\n");
await put("/deploy/production", { "content-type": "application/json" }, '{ "version": 41 }\n');
await put("/deploy/staging", { "content-type": "application/json" }, '{ "version": 42 }\n');
const acquire = (path, holder, seconds) =>
  send(`${blobs.service}${path}?lease`, "POST", { "lease-duration": seconds, "lease-holder": holder });
const upstream = await site(test, (request, response) => {
  response.writeHead(200, { "cache-control": request.url === "/basket" ? "private" : "max-age=600", etag: '"v7"' });
  response.end("hello");
});
const proxy = await gateway(test, ["proxy", "--upstream", upstream]);

// Ten minutes of a day: readers, most of whom have the current version, and pages, more and more of which are cached.
const get = async (url, headers = {}) => (await send(url, "GET", headers)).arrayBuffer();
const tag = (await send(`${blobs.service}/docs/plan/week.md`)).headers.get("etag");
const start = performance.now();
let isOver = false;
const traffic = (async () => {
  for (let turn = 0; !isOver; turn += 1) {
    const share = (performance.now() - start) / (MINUTES * 60_000);
    const requests = Math.round(8 + 5 * Math.sin(share * 9) + 3 * Math.sin(share * 31) + 2 * Math.random());
    for (let count = 0; count < requests; count += 1) {
      await get(`${blobs.service}/docs/plan/week.md`, count % 5 ? { "if-none-match": tag } : {});
      const isPopular = Math.random() < 0.35 + 0.5 * share;
      await get(`${proxy.service}/${isPopular ? ["news", "style.css", "logo.svg"][count % 3] : `article/${turn}-${count}`}`);
    }
    await get(`${proxy.service}/basket`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
})();
await new Promise((resolve) => setTimeout(resolve, MINUTES * 60_000));
await acquire("/deploy/production", "alice@laptop", "-1");
await acquire("/deploy/staging", "ci-runner-3", "60");
// Clients behind one address, as behind a proxy.
for (const [agent, tries] of [
  ["deploy/2.1", 6],
  ["azsdk-python-storage-blob/12.19.0 Python/3.11.2", 2],
  ["rclone/v1.66.0", 3],
  ["HashiCorp Terraform/1.9.8 (+https://www.terraform.io)", 8],
  ["HashiCorp Terraform/1.13.0 (+https://www.terraform.io)", 14],
]) {
  for (let count = 0; count < tries; count += 1) await put("/deploy/production", { "user-agent": agent }, "{}");
}
for (let count = 0; count < 9; count += 1) {
  await put("/docs/plan/week.md", { "if-match": '"31f2c09ad57e-1795885247124460"', "user-agent": "editor/5.0" }, "mine");
}
await put("/docs/logo.txt", { "if-none-match": "*", "user-agent": "upload.sh" }, "again");
const basket = encodeURIComponent(`${proxy.service}/basket`);

const schemes = [["light", folder], ["dark", darkFolder]].filter(([, path]) => path);
for (const [name, url] of [
  ["overview", blobs.console],
  ["conflicts", `${blobs.console}/conflicts`],
  ["leases", `${blobs.console}/leases`],
  ["blobs", `${blobs.console}/blob?path=docs%2Fplan%2Fweek.md`],
  ["cache", `${proxy.console}/cache?url=${basket}`],
]) {
  for (const [colorScheme, path] of schemes) {
    for (const [width, viewport] of [["wide", WIDE], ["narrow", NARROW]]) {
      const page = await open(chromium, url, { viewport, colorScheme });
      await page.screenshot({ path: join(path, `console-${name}-${width}.png`) });
      await page.context().close();
    }
  }
}

// An edit conflict.
const page = await open(chromium, `${blobs.console}/blob?path=docs%2Fplan%2Fweek.md`, { viewport: WIDE });
await put("/docs/plan/week.md", { "content-type": "text/markdown" }, "# Week 48\n\n- Monday: release 42\n- Tuesday: rest\n- Wednesday: plan\n");
await page.getByLabel("Text").fill("# Week 48\n\n- Monday: release at noon\n- Tuesday: rest\n- Wednesday: plan\n- Friday: retrospective\n");
await page.getByRole("button", { name: "Save" }).click();
await page.getByText("changed while you were editing").waitFor();
await page.screenshot({ path: join(folder, "console-merge-wide.png") });
isOver = true;
await traffic;
for (const end of ends.reverse()) await end();
process.exit();
