// What an attacker would try: foreign pages, foreign names, hostile names, header fields and contents.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request as plainRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { browser, check, follow, gateway, LIMIT, open, send, signedIn, site } from "../support.js";

const TOKEN = "an-operators-token-0123456789";
const READ = "a-readers-token-0123456789";

/** Sends a request with any Host, which fetch does not permit. */
function raw(url, { method = "GET", headers = {}, body = "" } = {}) {
  return new Promise((resolve, reject) => {
    const request = plainRequest(url, { method, headers, signal: AbortSignal.timeout(LIMIT) }, (response) => {
      response.resume().on("end", () => resolve(response));
    });
    request.on("error", reject).end(body);
  });
}

async function signIn(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

test("nothing is shown or changed without the token that the API asks for", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"], { IFMATCH_WRITE_TOKEN: TOKEN, IFMATCH_READ_TOKEN: READ });
  const authorization = { authorization: `Bearer ${TOKEN}` };
  assert.equal((await send(`${at.service}/c/secret.txt`, "PUT", authorization, "hush")).status, 201);
  for (const path of ["/", "/blobs", "/blobs?path=c%2F", "/blob?path=c%2Fsecret.txt", "/raw?path=c%2Fsecret.txt", "/leases", "/conflicts"]) {
    const name = `ifmatch-console-${new URL(at.console).port}`;
    for (const cookie of ["", `${name}=${TOKEN}`, `${name}=`]) {
      const answer = await send(at.console + path, "GET", { cookie });
      // The page that was asked for is where the sign-in leads to.
      const text = (await answer.text()).replace(/name="to" value="[^"]*"/, "");
      assert.equal(answer.status, 401, path);
      assert.ok(!text.includes("secret") && !text.includes("hush"), path);
    }
  }
  const form = { "content-type": "application/x-www-form-urlencoded" };
  const deletion = await send(`${at.console}/blob/delete`, "POST", form, "path=c%2Fsecret.txt&tag=*");
  assert.equal(deletion.status, 401);
  const large = await send(`${at.console}/sign-in`, "POST", form, `token=${"x".repeat(100_000)}`);
  assert.equal(large.status, 413, "memory for anyone");

  const chromium = await browser(t);
  const page = await open(chromium, at.console, { viewport: { width: 390, height: 844 } });
  await check(page);
  await signIn(page, "wrong-token");
  await page.getByText("This token isn't accepted.").waitFor();
  await signIn(page, TOKEN);
  await page.getByText("Ready", { exact: true }).waitFor();
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  assert.ok(!cookie.value.includes(TOKEN) && !(await page.content()).includes(TOKEN));
  await page.goto(`${at.console}/blob?path=c%2Fsecret.txt`);
  // A form of the same session without its token is refused.
  const forged = await page.request.post(`${at.console}/blob/delete`, { form: { path: "c/secret.txt", tag: "*" } });
  assert.equal(forged.status(), 403);
  // A frame, an image or a script of another port of this host is not the same origin, although its requests have the cookie.
  const evil = await site(t, (request, response) => {
    response.writeHead(200, { "content-type": "text/html" });
    response.end(`<form method="post" action="${at.console}/blob/delete"><input name="path" value="c/secret.txt"><input name="tag" value="*">
      <button>win</button></form><iframe src="${at.console}/"></iframe>`);
  });
  await page.goto(evil);
  const frame = page.frames()[1];
  assert.ok(!frame || !(await frame.content()).includes("Ready"), "the console is in a frame of another site");
  await page.getByRole("button", { name: "win" }).click();
  await page.getByText("Another site sent this request").waitFor();
  assert.equal((await send(`${at.service}/c/secret.txt`, "GET", authorization)).status, 200);
  await page.goto(at.console);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  const replayed = await send(at.console, "GET", { cookie: `${cookie.name}=${cookie.value}` });
  assert.equal(replayed.status, 401, "a session that has ended");

  // A reader comes to the page that was asked for, sees, and changes nothing.
  await page.goto(`${at.console}/blob?path=c%2Fsecret.txt`);
  await signIn(page, READ);
  await page.waitForURL(/blob\?path=c%2Fsecret\.txt/);
  assert.equal(await page.getByLabel("Text").inputValue(), "hush");
  for (const name of [/save/i, /delete/i, /break/i, /create/i]) {
    assert.equal(await page.getByRole("button", { name }).or(page.getByRole("link", { name })).count(), 0, String(name));
  }
  const [, formToken] = /name="form_token" value="([^"]+)"/.exec(await page.content());
  const tried = { path: "c/secret.txt", tag: '"a"', text: "changed", form_token: formToken };
  const refused = await page.request.post(`${at.console}/blob/save`, { form: tried, headers: { origin: at.console } });
  assert.deepEqual([refused.status(), (await refused.text()).includes("changed")], [403, true]);
  // No sign-in leads to another site.
  for (const to of ["//evil.example/", "https://evil.example/", "/\\evil.example/", "/\t/evil.example/"]) {
    const sent = new URLSearchParams({ token: READ, to });
    const answer = await fetch(`${at.console}/sign-in`, { method: "POST", body: sent, redirect: "manual", signal: AbortSignal.timeout(LIMIT) });
    assert.equal(answer.headers.get("location"), "/", to);
  }
});

test("foreign names and foreign origins reach nothing", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  await send(`${at.service}/c/a`, "PUT", {}, "one");
  for (const host of ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"]) {
    assert.equal((await raw(at.console, { headers: { host } })).statusCode, 421, host);
  }
  assert.equal((await raw(at.console, { headers: { host: "localhost" } })).statusCode, 200);
  const page = await (await send(`${at.console}/blob?path=c%2Fa`)).text();
  const [, token] = /name="form_token" value="(\w+)"/.exec(page);
  const [, tag] = /name="tag" value="&#34;([^&]+)&#34;"/.exec(page);
  const body = new URLSearchParams({ form_token: token, path: "c/a", tag: `"${tag}"` }).toString();
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  const host = new URL(at.console).host;
  for (const foreign of [
    { origin: "http://evil.example" },
    { origin: "null" },
    { origin: `https://${host}` },
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" },
  ]) {
    const answer = await raw(`${at.console}/blob/delete`, { method: "POST", headers: { ...headers, ...foreign }, body });
    assert.equal(answer.statusCode, 403, JSON.stringify(foreign));
  }
  const embedded = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image" };
  assert.equal((await raw(`${at.console}/raw?path=c%2Fa`, { headers: embedded })).statusCode, 403);
  const stale = body.replace(token, token.replace(/./g, "0"));
  assert.equal((await raw(`${at.console}/blob/delete`, { method: "POST", headers, body: stale })).statusCode, 403);
  assert.equal((await send(`${at.service}/c/a`)).status, 200);
  // The same form as the console's own.
  const own = await raw(`${at.console}/blob/delete`, { method: "POST", headers: { ...headers, origin: at.console }, body });
  assert.equal(own.statusCode, 303);
});

test("hostile names, header fields and contents are shown as text", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const names = [
    "<img src=x onerror=alert(1)>.txt", "javascript:alert(1)", "\"><script>alert(1)</script>", "{{7*7}}", "a\u202egpj.exe",
    "x' onmouseover='alert(1)", "&lt;b&gt;",
  ];
  const content = "<!doctype html><body>harmless<script>document.body.innerText='scripted';parent.document.title='owned'</script>"
    + "<img src=x onerror=alert(1)></textarea><script>alert(2)</script>";
  for (const name of names) {
    const url = `${at.service}/c/${name.split("/").map(encodeURIComponent).join("/")}`;
    assert.equal((await send(url, "PUT", { "content-type": "text/html", "if-none-match": "*" }, content)).status, 201, name);
    const lost = { "if-match": '"<svg onload=alert(1)>"', "user-agent": "<script>alert(1)</script>" };
    assert.equal((await send(url, "PUT", lost, "x")).status, 412, name);
    const holder = { "lease-duration": "-1", "lease-holder": "<b onclick=alert(1)>x</b>" };
    assert.ok([201, 400].includes((await send(`${url}?lease`, "POST", holder)).status), name);
  }
  const page = await open(await browser(t), `${at.console}/blobs?path=c%2F`, { viewport: { width: 1280, height: 900 } });
  const harmful = "main script, [onerror], [onload], [onclick], [onmouseover], a[href^='javascript:'], main svg:not([role=img])";
  const dangerous = () => page.locator(harmful).count();
  const script = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
  for (const path of ["/blobs?path=c%2F", "/conflicts", "/leases", `/conflicts?path=${script}`, `/leases?prefix=%22%3E${script}`]) {
    await page.goto(at.console + path);
    assert.equal(await dangerous(), 0, path);
    await check(page);
  }
  await page.goto(`${at.console}/blobs?path=c%2F`);
  await page.getByText("a\\u{202e}gpj.exe").waitFor();
  for (const name of names) {
    await page.goto(`${at.console}/blob?path=${encodeURIComponent(`c/${name}`)}`);
    assert.equal(await dangerous(), 0, name);
    const inside = page.frameLocator("iframe").locator("body");
    assert.equal((await inside.innerText()).trim().split("\n")[0], "harmless", name);
    assert.equal(await page.getByLabel("Text").inputValue(), content, name);
    assert.ok(!(await page.title()).includes("owned"), name);
    await check(page);
  }
  // The content itself, opened as a page of its own.
  const opened = await send(`${at.console}/raw?path=${encodeURIComponent(`c/${names[0]}`)}`);
  assert.match(opened.headers.get("content-security-policy"), /^sandbox; default-src 'none'/);
  assert.equal(opened.headers.get("x-content-type-options"), "nosniff");
  await page.goto(`${at.console}/raw?path=${encodeURIComponent(`c/${names[0]}`)}`);
  assert.match(await page.locator("body").innerText(), /^harmless/);
  assert.deepEqual(page.troubles, []);
});

test("the console of a proxy sends its token to no upstream", async (t) => {
  const seen = [];
  const upstream = await site(t, (request, response) => {
    seen.push(`${request.method} ${request.url}`);
    response.end("content of the upstream");
  });
  const at = await gateway(t, ["proxy", "--upstream", upstream], { IFMATCH_WRITE_TOKEN: TOKEN });
  const { cookie } = await signedIn(at.console, TOKEN);
  assert.equal((await send(at.console, "GET", { cookie })).status, 200);
  for (const path of ["/blobs", "/blobs?path=c%2F", "/blob?path=c%2Fa", "/raw?path=c%2Fa"]) {
    const answer = await send(at.console + path, "GET", { cookie });
    assert.equal(answer.status, 404, path);
  }
  assert.deepEqual(seen, []);
});

test("a text that cannot be saved is shown again", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const put = await send(`${at.service}/c/a.txt`, "PUT", { "content-type": "text/plain" }, "one");
  const [, token] = /name="form_token" value="([^"]+)"/.exec(await (await send(`${at.console}/blob?path=c%2Fa.txt`)).text());
  const save = async (tag, text) => {
    const body = new URLSearchParams({ path: "c/a.txt", tag, text, form_token: token });
    const answer = await send(`${at.console}/blob/save`, "POST", { origin: at.console }, body);
    return [answer.status, (await answer.text()).includes("my long work")];
  };
  assert.deepEqual(await save("*", "my long work"), [400, true], "a tag that names all versions");
  assert.deepEqual(await save(put.headers.get("etag"), "my long work".padEnd(300_000)), [413, true]);
  assert.equal(await (await send(`${at.service}/c/a.txt`)).text(), "one");
  await send(`${at.service}/c/a.txt`, "DELETE");
  assert.deepEqual(await save(put.headers.get("etag"), "my long work"), [404, true]);
});

test("a proxy forwards no cookie of a console", async (t) => {
  const seen = [];
  const upstream = await site(t, (request, response) => {
    seen.push(request.headers.cookie);
    response.end("hello");
  });
  const at = await gateway(t, ["proxy", "--upstream", upstream], { IFMATCH_WRITE_TOKEN: TOKEN });
  const { cookie } = await signedIn(at.console, TOKEN);
  assert.match(cookie, new RegExp(`^ifmatch-console-${new URL(at.console).port}=`));
  for (const sent of [cookie, `a=1; ${cookie}; b=2`, "a=1"]) await (await send(`${at.service}/x`, "GET", { cookie: sent })).text();
  assert.deepEqual(seen, [undefined, "a=1; b=2", "a=1"]);
});

test("no path of a page leads to an endpoint, and odd paths are refused in words", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  await send(`${at.service}/c/a`, "PUT", {}, "one");
  const endpoints = ["-", "-/", "-/overview", "-/metrics", "-/leases/c/a", "/-/overview", "./-/overview", "c/../-/overview", "-%2Foverview"];
  const odd = ["", "/", "//", "c", "c/", ".", "..", "c/..", "c/\0", "c/\n", ".x/y", "?/x", "#/x", "x".repeat(5000), `c/${"x".repeat(5000)}`];
  const encoded = encodeURIComponent;
  for (const path of [...endpoints, ...odd]) {
    for (const page of ["/raw", "/blob"]) {
      const answer = await send(`${at.console}${page}?path=${encoded(path)}`);
      assert.deepEqual([answer.status, (await answer.text()).includes("No such blob")], [404, true], `${page} ${path}`);
    }
    const broken = await send(`${at.console}/leases/break?path=${encoded(path)}`);
    assert.ok([400, 404].includes(broken.status) || path === "c", `${broken.status} for the lease of ${path}`);
    for (const page of ["/blobs", "/conflicts", "/leases", "/cache"]) {
      for (const name of ["path", "prefix", "after", "url", "done"]) {
        const { status } = await send(`${at.console}${page}?${name}=${encoded(path)}`);
        assert.ok(status < 500, `${status} for ${page}?${name}=${path}`);
      }
    }
  }
  const empty = await send(`${at.console}/leases/break?path=`);
  assert.deepEqual([empty.status, /No lease can have this path: .+/.test(await empty.text())], [400, true]);
  for (const container of ["-", "-/overview", ".", "?"]) {
    assert.equal((await send(`${at.console}/blobs?path=${encoded(container)}%2F`)).status, 404, container);
  }
  // A container without its slash.
  assert.match(await (await send(`${at.console}/blobs?path=c`)).text(), /path=c%2Fa/);

  const [, token] = /name="form_token" value="([^"]+)"/.exec(await (await send(`${at.console}/blob?path=c%2Fa`)).text());
  for (const path of [...endpoints, ...odd]) {
    for (const [page, fields] of [
      ["/leases/break", { path, period: "0", token: "1" }], ["/leases/break", { path, period: "x", token: "" }],
      ["/blob/save", { path, tag: '"a"', text: "x" }], ["/blob/delete", { path, tag: '"a"' }],
      ["/blobs/new", { folder: "", name: path, text: "x" }], ["/cache/purge", { what: "url", value: path }],
    ]) {
      const body = new URLSearchParams({ ...fields, form_token: token });
      const { status } = await send(`${at.console}${page}`, "POST", { origin: at.console }, body);
      assert.ok(status >= 400 && status < 500, `${status} for ${page} ${path}`);
    }
  }
  assert.equal(await (await send(`${at.service}/c/a`)).text(), "one");
});

test("live pages are bounded, and end with their session and with the gateway", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "ifmatch-console-token-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "token");
  writeFileSync(file, `${TOKEN}\n`);
  const at = await gateway(t, ["serve", "--data", "FOLDER/data", "--write-token-file", file], { IFMATCH_READ_TOKEN: READ });
  const url = `${at.console}/conflicts`;
  assert.equal(await (await follow(url)).next(), "event: end\ndata:", "without a session");
  for (const [foreign, status] of [[{ host: "evil.example" }, 421], [{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors" }, 403]]) {
    const answer = await raw(url, { headers: { accept: "text/event-stream", ...foreign } });
    assert.equal(answer.statusCode, status, JSON.stringify(foreign));
  }
  const headers = await signedIn(at.console, TOKEN);
  const reader = await signedIn(at.console, READ);
  const streams = [];
  for (let count = 0; count < 16; count += 1) {
    const stream = await follow(url, headers);
    assert.match(await stream.next(), /^event: page\ndata: <!doctype html>/);
    streams.push(stream);
  }
  assert.equal((await follow(url, headers)).status, 503, "a seventeenth page of a session");
  const other = await follow(url, reader);
  assert.equal(other.status, 200, "a page of another session");
  streams.pop().close();
  let again = await follow(url, headers);
  // The gateway notices the end of a connection when it next sends something.
  for (let tries = 0; again.status === 503 && tries < 100; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    again = await follow(url, headers);
  }
  assert.equal(again.status, 200, "the place of a page that was closed is free within 50 seconds");
  again.close();
  // Until the last event.
  const last = async (stream) => {
    let event;
    for (let next = await stream.next(); next !== null; next = await stream.next()) event = next;
    return event;
  };
  const page = await (await send(`${at.console}/leases`, "GET", headers)).text();
  const [, token] = /name="form_token" value="([^"]+)"/.exec(page);
  await send(`${at.console}/sign-out`, "POST", { ...headers, origin: at.console }, new URLSearchParams({ form_token: token }));
  for (const stream of streams) assert.equal(await last(stream), "event: end\ndata:", "after the sign-out");

  const [kept, removed] = [await follow(url, reader), await follow(url, await signedIn(at.console, TOKEN))];
  writeFileSync(file, `${TOKEN}-new\n`);
  at.process.kill("SIGHUP");
  assert.equal(await last(removed), "event: end\ndata:", "after the removal of the token");
  assert.match(await kept.next(), /^event: page/);
  const exited = once(at.process, "exit", { signal: AbortSignal.timeout(LIMIT) });
  at.process.kill("SIGTERM");
  assert.doesNotMatch(await last(kept) ?? "", /event: end/);
  assert.deepEqual(await exited, [0, null], "the gateway ends without cutting a page off");
});

test("operators without a token share live pages only with their own address", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"]);
  const url = `${at.console}/conflicts`;
  for (let count = 0; count < 16; count += 1) assert.equal((await follow(url)).status, 200);
  assert.equal((await follow(url)).status, 503, "a seventeenth page");
  const status = new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(LIMIT);
    const options = { headers: { accept: "text/event-stream" }, localAddress: "127.0.0.2", signal };
    const request = plainRequest(url, options, (response) => resolve(response.statusCode));
    request.on("error", reject).end();
    t.after(() => request.destroy());
  });
  assert.equal(await status, 200, "a page at another address");
});

test("forms take bounded memory", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"], { IFMATCH_WRITE_TOKEN: TOKEN });
  const headers = await signedIn(at.console, TOKEN);
  const { port } = new URL(at.console);
  // Uploads that are announced, and never arrive.
  const announced = (path, length, fields) => new Promise((resolve) => {
    const request = plainRequest({
      host: "127.0.0.1", port, path, method: "POST", headers: { ...fields, "content-length": length }, signal: AbortSignal.timeout(LIMIT),
    });
    request.on("response", (response) => resolve(response.resume().statusCode));
    request.on("error", resolve);
    request.flushHeaders();
    t.after(() => request.destroy());
    request.write("x");
  });
  const answered = [];
  const uploads = Array.from({ length: 3 }, () => announced("/blobs/new", 16 << 20, headers).then((status) => answered.push(status)));
  await Promise.race(uploads);
  // The answers to the others would be there by now.
  await new Promise((resolve) => setTimeout(resolve, 1000));
  assert.deepEqual(answered, [503], "half of 64 MiB for one client");
  // Those who have not signed in take nothing from them, nor are they kept out.
  assert.equal((await send(at.console, "GET", await signedIn(at.console, TOKEN))).status, 200);
  const sender = { "content-type": "application/x-www-form-urlencoded" };
  const statuses = new Set();
  for (let count = 0; count < 200; count += 1) {
    const answer = announced("/sign-in", 16 << 10, sender);
    statuses.add(await Promise.race([answer, new Promise((resolve) => setTimeout(resolve, count > 60 ? 300 : 1))]));
    if (statuses.has(503)) break;
  }
  assert.ok(statuses.has(503), "sign-ins that never arrive are bounded");
});
