import { conditional, preconditionFailed, replaces } from "ifmatch/fetch";

const notes = new Map();
const name = (request) => new URL(request.url).pathname;

async function handler(request) {
  const key = name(request);
  if (request.method === "GET" || request.method === "HEAD") {
    const { text, etag } = notes.get(key) ?? {};
    return etag ? new Response(text, { headers: { etag } }) : new Response(null, { status: 404 });
  }
  if (request.method !== "PUT") return new Response(null, { status: 405, headers: { allow: "GET, HEAD, PUT" } });
  const text = await request.text();
  // Another write may have come first: replace the version that the request names, and no other.
  if (notes.get(key)?.etag !== replaces(request)?.etag) return preconditionFailed();
  const etag = `"${crypto.randomUUID()}"`;
  notes.set(key, { text, etag });
  return new Response(null, { status: 204, headers: { etag } });
}

const current = (request) => notes.get(name(request))?.etag ?? null;
export default { fetch: conditional(handler, { current, required: true }) };
