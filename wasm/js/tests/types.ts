// Compiled, not run: checks the declarations.
import { ContentHash, ContentHasher, evaluatePreconditions, lastModified, selectRange, type Validators } from "ifmatch";

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
