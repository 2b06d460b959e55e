// A minimal Worker in JavaScript: a bucket over HTTP, with R2's conditions.
const raw = (tag) => tag?.replaceAll('"', "");

export default {
  async fetch(request, env) {
    const key = new URL(request.url).pathname.slice(1);
    if (request.method === "PUT") {
      const match = request.headers.get("if-match");
      const onlyIf = match ? { etagMatches: raw(match) } : undefined;
      const written = await env.BUCKET.put(key, request.body, { onlyIf });
      return new Response(null, written ? { status: 200, headers: { etag: written.httpEtag } } : { status: 412 });
    }
    const object = await env.BUCKET.get(key, { onlyIf: request.headers });
    if (!object) return new Response(null, { status: 404 });
    const headers = { etag: object.httpEtag, "last-modified": object.uploaded.toUTCString() };
    if (!object.body) return new Response(null, { status: 304, headers });
    return new Response(object.body, { headers });
  },
};
