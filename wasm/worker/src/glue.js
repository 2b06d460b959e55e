// What is asked of the runtime's objects, in one call each: to cross from WebAssembly takes longer than what is done here.

// What is told of answers: the number of the question, whether it failed, a text, and an object or the error.
let told;
export const listen = (listener) => {
  told = listener;
};

// The method, the URL, and the names and values of the fields: a line each.
export function head(request) {
  let lines = `${request.method}\n${request.url}`;
  request.headers.forEach((value, name) => {
    lines += `\n${name}\n${value}`;
  });
  return lines;
}

// A response whose fields are names and values, a line each.
export function response(body, status, fields, isEncoded) {
  const lines = fields.split("\n");
  const headers = {};
  for (let at = 1; at < lines.length; at += 2) {
    const [name, value] = [lines[at - 1], lines[at]];
    headers[name] = Object.hasOwn(headers, name) ? `${headers[name]}, ${value}` : value;
  }
  // Otherwise the runtime would encode once more what is stored encoded.
  return new Response(body, isEncoded ? { status, headers, encodeBody: "manual" } : { status, headers });
}

// A variable or a secret as a text, also where it is a number or a boolean. Nothing, if it is not set.
export const variable = (env, name) => (env[name] == null ? undefined : String(env[name]));

// Tells a text and an object, as `ask` comes to them; or that it takes longer than so many milliseconds, unless they are 0.
async function answer(number, patience, ask) {
  const tell = told;
  const late = () => tell(number, true, undefined, new Error(`no answer within ${patience} ms`));
  const timer = patience && setTimeout(late, patience);
  let said;
  try {
    said = [false, ...(await ask())];
  } catch (error) {
    said = [true, undefined, error];
  }
  if (patience) clearTimeout(timer);
  tell(number, ...said);
}

// Asks a Durable Object. Its name and its answer are all that there is of the request: it has no host.
export function ask(number, patience, objects, name, message) {
  const request = () => new Request("https://records.ifmatch/", { method: "POST", body: message.slice() });
  answer(number, patience, async () => {
    const response = await objects.getByName(name).fetch(request());
    const said = new Uint8Array(await response.arrayBuffer());
    if (response.status !== 200) throw new Error(`status ${response.status}`);
    return [undefined, said];
  });
}

// Reads an object of R2, or what is known of it alone. The options are those of R2, as JSON; empty if there are none.
export const get = (number, patience, bucket, key, options) =>
  answer(number, patience, async () => described(await bucket.get(key, options ? JSON.parse(options) : undefined), true));
export const look = (number, patience, bucket, key) =>
  answer(number, patience, async () => described(await bucket.head(key), false));

// Serializes a page of a listing: the cursor of the next page, the names of the folders, and each object with its name, separated by
// lines with a backslash and a hyphen.
export const list = (number, patience, bucket, options) =>
  answer(number, patience, async () => {
    const { objects, delimitedPrefixes, truncated, cursor } = await bucket.list(JSON.parse(options));
    const named = objects.map((object) => `${line(object.key)}\n${description(object)}`);
    return [[truncated ? line(cursor) : "", delimitedPrefixes.map(line).join("\n"), ...named].join("\n\\-\n"), null];
  });

// What is known of an object, and its bytes if it was sent with them. Nothing, if there is no object.
const described = (object, isRead) =>
  object === null ? [undefined, null] : [description(object), isRead ? object.body : null];

function description(object) {
  const { uploaded, size, httpEtag, version, httpMetadata, customMetadata } = object;
  const lines = [uploaded.getTime(), size, httpEtag, version];
  for (const name in httpMetadata) if (httpMetadata[name] !== undefined) lines.push(name, httpMetadata[name]);
  // No header field of R2 has this name.
  lines.push("");
  for (const name in customMetadata) lines.push(name, customMetadata[name]);
  return lines.map(line).join("\n");
}

// A text in one line.
const line = (text) => {
  const written = String(text);
  return /[\\\n]/.test(written) ? written.replaceAll("\\", "\\\\").replaceAll("\n", "\\n") : written;
};

// Writes an object of R2.
export const put = (number, patience, bucket, key, bytes, options) =>
  answer(number, patience, async () => {
    const object = await bucket.put(key, bytes, JSON.parse(options));
    return [object ? version(object) : undefined, null];
  });

const version = (object) => `${object.httpEtag}\n${object.version}`;

// Deletes up to a thousand objects of R2. Their names are JSON.
export const remove = (number, patience, bucket, keys) =>
  answer(number, patience, async () => [undefined, await bucket.delete(JSON.parse(keys))]);

// Uploads in parts.
export const beginUpload = (number, patience, bucket, key, options) =>
  answer(number, patience, async () => [(await bucket.createMultipartUpload(key, JSON.parse(options))).uploadId, null]);
export const sendPart = (number, patience, bucket, key, upload, part, body) =>
  answer(number, patience, async () => [(await bucket.resumeMultipartUpload(key, upload).uploadPart(part, body)).etag, null]);
export const endUpload = (number, patience, bucket, key, upload, parts) =>
  answer(number, patience, async () => [version(await bucket.resumeMultipartUpload(key, upload).complete(JSON.parse(parts))), null]);
export const leaveUpload = (number, patience, bucket, key, upload) =>
  answer(number, patience, async () => [undefined, await bucket.resumeMultipartUpload(key, upload).abort()]);
