import { evaluatePreconditions, hasWriteCondition, selectRange } from "ifmatch";

export default {
  async fetch(request, { BUCKET }) {
    const key = new URL(request.url).pathname.slice(1);
    if (request.method === "PUT") return write(request, BUCKET, key);
    if (request.method === "GET" || request.method === "HEAD") return read(request, BUCKET, key);
    return new Response(null, { status: 405, headers: { allow: "GET, HEAD, PUT" } });
  },
};

async function read(request, bucket, key) {
  const found = await bucket.head(key);
  if (!found) return new Response("not found\n", { status: 404 });
  const current = { etag: found.httpEtag, length: found.size };
  const headers = { etag: current.etag, "accept-ranges": "bytes" };

  const verdict = evaluatePreconditions(request, current);
  if (verdict.outcome !== "proceed") return new Response(null, { status: verdict.status, headers });
  if (request.method === "HEAD") return new Response(null, { headers: { ...headers, "content-length": found.size } });
  const selection = selectRange(request, current);
  if (selection.outcome === "unsatisfiable") {
    return new Response(null, { status: 416, headers: { ...headers, "content-range": selection.contentRange } });
  }
  // Several ranges may get the whole content.
  const [part, ...others] = selection.outcome === "parts" ? selection.ranges : [];
  const range = part && others.length === 0 ? { offset: part.start, length: part.end - part.start + 1 } : undefined;

  // The bytes must belong to this version.
  const object = await bucket.get(key, { onlyIf: { etagMatches: found.etag }, range });
  if (!object?.body) return new Response("the object was replaced: retry\n", { status: 503, headers: { "retry-after": "1" } });
  if (!range) return new Response(object.body, { headers });
  return new Response(object.body, { status: 206, headers: { ...headers, "content-range": part.contentRange } });
}

async function write(request, bucket, key) {
  // R2 stores a stream only if its length is known.
  if (request.body && !request.headers.has("content-length")) return new Response("send Content-Length\n", { status: 411 });
  if (!hasWriteCondition(request)) return new Response("send If-Match, or If-None-Match: *\n", { status: 428 });
  const found = await bucket.head(key);
  const verdict = evaluatePreconditions(request, found && { etag: found.httpEtag });
  if (verdict.outcome !== "proceed") return new Response(null, { status: verdict.status });

  // Another write may happen in between: R2 checks once more that the version is still the same.
  const onlyIf = found ? { etagMatches: found.etag } : { etagDoesNotMatch: "*" };
  const saved = await bucket.put(key, request.body, { onlyIf });
  if (!saved) return new Response(null, { status: 412 });
  return new Response(null, { status: found ? 204 : 201, headers: { etag: saved.httpEtag } });
}
