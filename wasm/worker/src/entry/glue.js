// What is asked of the runtime's objects, in one call each: to cross from WebAssembly takes longer than what is done here.

// The method, the URL, and the names and values of the fields: a line each.
export const head = (request) => [request.method, request.url, ...[...request.headers].flat()].join("\n");

// A response whose fields are names and values, a line each.
export function response(body, status, fields, isEncoded) {
  const lines = fields.split("\n");
  const headers = [];
  for (let at = 1; at < lines.length; at += 2) headers.push([lines[at - 1], lines[at]]);
  // Otherwise the runtime would encode once more what is stored encoded.
  return new Response(body, isEncoded ? { status, headers, encodeBody: "manual" } : { status, headers });
}

// Reads an object of R2, or what is known of it alone. The options are those of R2, as JSON.
export const get = (bucket, key, options) => bucket.get(key, JSON.parse(options));
export const look = (bucket, key) => bucket.head(key);

// What is known of an object, as JSON.
export const describe = ({ uploaded, size, httpEtag, version, httpMetadata, customMetadata }) =>
  JSON.stringify({ uploaded: uploaded.getTime(), size, httpEtag, version, httpMetadata, customMetadata });

// The bytes of an object, if it was sent with them.
export const body = (object) => object.body;
