// What an attacker would try: foreign pages, foreign names, hostile names, header fields and contents.
import assert from "node:assert/strict";
import { request as plainRequest } from "node:http";
import { test } from "node:test";
import { browser, check, gateway, LIMIT, open, send, site } from "../support.js";

const TOKEN = "an-operators-token-0123456789";
const READ = "a-readers-token-0123456789";

/// Sends a request with any Host, which fetch does not permit.
function raw(url, { method = "GET", headers = {}, body = "" } = {}) {
  return new Promise((resolve, reject) => {
    const request = plainRequest(url, { method, headers, timeout: LIMIT }, (response) => {
      response.resume().on("end", () => resolve(response));
    });
    request.on("error", reject).end(body);
  });
}

async function signIn(page, token) {
  await page.getByLabel("Token of an operator").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

test("nothing is shown or changed without the token that the API asks for", async (t) => {
  const at = await gateway(t, ["serve", "--data", "FOLDER/data"], { IFMATCH_WRITE_TOKEN: TOKEN, IFMATCH_READ_TOKEN: READ });
  const authorization = { authorization: `Bearer ${TOKEN}` };
  assert.equal((await send(`${at.service}/c/secret.txt`, "PUT", authorization, "hush")).status, 201);
  for (const path of ["/", "/blobs", "/blobs?path=c%2F", "/blob?path=c%2Fsecret.txt", "/raw?path=c%2Fsecret.txt", "/leases", "/conflicts"]) {
    for (const cookie of ["", `ifmatch-console=${TOKEN}`, "ifmatch-console="]) {
      const answer = await send(at.console + path, "GET", { cookie });
      const text = await answer.text();
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
  await page.getByText("this token is not accepted").waitFor();
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
  await page.getByText("another site sent this request").waitFor();
  assert.equal((await send(`${at.service}/c/secret.txt`, "GET", authorization)).status, 200);
  await page.goto(at.console);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token of an operator").waitFor();
  const replayed = await send(at.console, "GET", { cookie: `${cookie.name}=${cookie.value}` });
  assert.equal(replayed.status, 401, "a session that has ended");

  // A reader sees, and changes nothing.
  await signIn(page, READ);
  await page.goto(`${at.console}/blob?path=c%2Fsecret.txt`);
  await page.getByLabel("Text").fill("changed");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("403: this token may only read").waitFor();
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
  const content = "<!doctype html><body>harmless<script>document.body.innerText='scripted';parent.document.title='owned'</script><img src=x onerror=alert(1)></textarea><script>alert(2)</script>";
  for (const name of names) {
    const url = `${at.service}/c/${name.split("/").map(encodeURIComponent).join("/")}`;
    assert.equal((await send(url, "PUT", { "content-type": "text/html", "if-none-match": "*" }, content)).status, 201, name);
    const lost = { "if-match": '"<svg onload=alert(1)>"', "user-agent": "<script>alert(1)</script>" };
    assert.equal((await send(url, "PUT", lost, "x")).status, 412, name);
    const holder = { "lease-duration": "-1", "lease-holder": "<b onclick=alert(1)>x</b>" };
    assert.ok([201, 400].includes((await send(`${url}?lease`, "POST", holder)).status), name);
  }
  const page = await open(await browser(t), `${at.console}/blobs?path=c%2F`, { viewport: { width: 1280, height: 900 } });
  const dangerous = () => page.evaluate(() => document.querySelectorAll("main script, [onerror], [onload], [onclick], [onmouseover], a[href^='javascript:'], main svg:not([role=img])").length);
  for (const path of ["/blobs?path=c%2F", "/conflicts", "/leases", "/conflicts?path=%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/leases?prefix=%22%3E%3Cscript%3E"]) {
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
  const form = { "content-type": "application/x-www-form-urlencoded" };
  const signedIn = await fetch(`${at.console}/sign-in`, {
    method: "POST", headers: form, body: `token=${TOKEN}`, redirect: "manual", signal: AbortSignal.timeout(LIMIT),
  });
  const cookie = signedIn.headers.get("set-cookie").split(";")[0];
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
