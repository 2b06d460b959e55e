// A service for notes that knows nothing about conditions. Each instance keeps its own notes in memory.

import types from "wasi:http/types@0.3.2";

const { Fields, Request, Response } = types;
const { RESULT_OPTION_OTHER_ERROR_CODE, RESULT_VOID_ERROR_CODE } = wit.Future;
const notes = new Map();

export const handler = {
  async handle(request) {
    const path = request.getPathWithQuery() ?? "/";
    switch (request.getMethod().tag) {
      case "put": {
        // A part must not replace the whole (RFC 9110 §14.5).
        if (request.getHeaders().has("content-range")) return answer(400);
        const received = await content(request);
        if (received === undefined) return answer(400);
        const status = notes.has(path) ? 204 : 201;
        notes.set(path, received);
        return answer(status);
      }
      case "delete":
        return answer(notes.delete(path) ? 204 : 404);
      case "get":
      case "head":
        return notes.has(path) ? answer(200, notes.get(path)) : answer(404);
      default:
        return answer(501);
    }
  },
};

// Returns undefined if the client has left before the end: a part must not replace the whole.
async function content(request) {
  const done = wit.Future.from({ tag: "ok" }, RESULT_VOID_ERROR_CODE).readable;
  const [stream, trailers] = Request.consumeBody(request, done);
  let received = new Uint8Array();
  for await (const chunk of stream) {
    const longer = new Uint8Array(received.length + chunk.length);
    longer.set(received);
    longer.set(chunk, received.length);
    received = longer;
  }
  const end = await trailers.read();
  return end.tag === "ok" ? received : undefined;
}

function answer(status, content) {
  const trailers = wit.Future.from({ tag: "ok", val: null }, RESULT_OPTION_OTHER_ERROR_CODE).readable;
  const [response] = Response.new(new Fields(), content && [content], trailers);
  response.setStatusCode(status);
  return response;
}
