// Compiled, not run: checks the declarations.
import { ContentHash, ContentHasher, evaluatePreconditions, lastModified, selectRange, type Validators } from "ifmatch";
import { Client, ClientError, json, type Found, type Version } from "ifmatch/client";
import * as fetched from "ifmatch/fetch";
import { conditional, replaces } from "ifmatch/hono";
import * as node from "ifmatch/node";
import express from "express";
import { Hono } from "hono";

const request = new Request("http://a/");
const validators: Validators = { etag: ['"a"', '"a-gzip"'], lastModified: new Date() };
const verdict = evaluatePreconditions(request, validators);
if (verdict.outcome === "failed") {
  const condition: "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" = verdict.condition;
  const status: 412 = verdict.status;
  console.log(condition, status);
}
evaluatePreconditions({ method: "GET", headers: new Map([["if-match", "*"]]) }, null);

const selection = selectRange(request, { etag: null, length: 5 });
if (selection.outcome === "parts") console.log(selection.ranges.map((range) => range.contentRange));

const hasher = new ContentHasher();
hasher.update(new Uint8Array(1));
hasher.update(new ArrayBuffer(1));
const hash: ContentHash = hasher.finish();
const tag: string = hash.versionedTag(1n);
const date: string | undefined = lastModified(new Date());
console.log(tag, date);

// @ts-expect-error a text has no bytes yet
hasher.update("text");
// @ts-expect-error a generation is a bigint
hash.versionedTag(1);
// @ts-expect-error a tag is a text
evaluatePreconditions(request, { etag: 1 });
// @ts-expect-error the property is etag
evaluatePreconditions(request, { eTag: '"a"' });
// @ts-expect-error a length must be given
selectRange(request, { etag: '"a"' });
// @ts-expect-error the property does not exist in this type
console.log(verdict.condition);

const guarded = fetched.conditional((request: Request, env: { BUCKET: string }) => {
  const replaced: fetched.Replaces = fetched.replaces(request);
  return replaced === null ? fetched.preconditionFailed() : new Response(env.BUCKET);
}, { current: (request, env) => (request.url === env.BUCKET ? '"v1"' : null), required: true });
const answer: Promise<Response> = guarded(request, { BUCKET: "b" });
console.log(answer);
// @ts-expect-error the option is required
fetched.conditional(() => new Response(), { require: true });
// @ts-expect-error a version is a text or an object
fetched.conditional(() => new Response(), { current: () => 1 });

const app = new Hono();
app.use("/notes/:name", conditional({ current: (c) => c.req.param("name") ?? null }));
app.put("/notes/:name", (c) => c.text(String(replaces(c)?.etag)));

const router = express();
router.use(node.conditional({ current: (req: express.Request) => `"${req.path}"`, required: true }));
router.use("/:id", express.text(), node.conditional({ current: (req) => `"${req.params.id}"`, required: true }));
router.put("/notes", (req, res) => (node.replaces(req) ? node.preconditionFailed(res, '"v2"') : undefined));
// @ts-expect-error it computes no tags
node.conditional({ maxLength: 1 });

interface Note { title: string; text: string }
const note = json((value): Note => {
  if (typeof value !== "object" || value === null || !("title" in value)) throw new TypeError("not a note");
  return value as Note;
});
const client = new Client({ headers: { authorization: "Bearer a" }, stamps: true });
async function edit(signal: AbortSignal): Promise<string> {
  const version: Version<Note> = await client.read("/notes/1", { codec: note, signal });
  if (version.etag === null) {
    const absent: undefined = version.value;
    return String(absent);
  }
  const saved = await client.save(version, { ...version.value, text: "b" }, { codec: note });
  if (saved.outcome === "saved") return saved.version.value.text;
  const [base, theirs, mine]: [Note | undefined, Version<Note>, Note] = [saved.base, saved.theirs, saved.mine];
  // @ts-expect-error what was not saved has no version of its own
  console.log(saved.version);
  return [base?.text, theirs.value?.text, mine.text].join();
}
async function others(found: Found<Note>): Promise<void> {
  const counted: Version<{ n: number }> = await client.update<{ n: number }>("/hits", (hits) => ({ n: (hits?.n ?? 0) + 1 }));
  const removed = await client.remove(found);
  if (removed.outcome === "conflict") console.log(removed.theirs.etag, counted.etag);
  const fence: number = await client.lock("/locks/a", async (held) => {
    await client.update<number>("/sum", (sum = 0) => sum + 1, { held });
    return held.fence;
  });
  console.log(fence);
  // @ts-expect-error a note has a text
  await client.create<Note>("/notes/2", { title: "a" });
  // @ts-expect-error what is not there can't be removed
  await client.remove(await client.read("/notes/1"));
}
console.log(edit, others, (error: unknown) => error instanceof ClientError && error.kind === "unknown");
