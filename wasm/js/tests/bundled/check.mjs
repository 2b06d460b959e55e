// The README's first example, as a program that a bundler takes along: two editors, of which the second gets 412.
import notes from "../workers/notes.mjs";

const ask = async (method, headers, body) => {
  const response = await notes.fetch(new Request("http://a/note", { method, headers, body }));
  return [response.status, response.headers.get("etag"), await response.text()];
};
const [created, etag] = await ask("PUT", { "if-none-match": "*" }, "milk");
const [unchanged] = await ask("GET", { "if-none-match": etag });
const [mine] = await ask("PUT", { "if-match": etag }, "bread");
const [theirs] = await ask("PUT", { "if-match": etag }, "eggs");
const [, , text] = await ask("GET", {});
console.log(JSON.stringify([created, unchanged, mine, theirs, text]));
