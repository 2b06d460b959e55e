import { contentTag } from "ifmatch";
import { conditional, preconditionFailed, replaces } from "ifmatch/fetch";

const notes = new Map();
const name = (request) => new URL(request.url).pathname;
const tag = (text) => (text === undefined ? null : contentTag(new TextEncoder().encode(text)));

async function handler(request) {
  const key = name(request);
  if (request.method === "GET") return new Response(notes.get(key), { status: notes.has(key) ? 200 : 404 });
  if (request.method !== "PUT") return new Response(null, { status: 405, headers: { allow: "GET, PUT" } });
  const text = await request.text();
  // Another write may have come first: replace the version that the request names, and no other.
  const version = replaces(request);
  if (version !== undefined && tag(notes.get(key)) !== (version?.etag ?? null)) return preconditionFailed();
  notes.set(key, text);
  return new Response(null, { status: 204, headers: { etag: tag(text) } });
}

const current = (request) => tag(notes.get(name(request)));
export default { fetch: conditional(handler, { current, required: true }) };
