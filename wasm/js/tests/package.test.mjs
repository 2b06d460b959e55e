// The package's behaviour beyond the RFC's tables.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import {
  ContentHash, ContentHasher, contentTag, evaluatePreconditions, hasWriteCondition, isRetainedBy304, lastModified, selectRange,
  strongMatch,
} from "ifmatch";

const bytes = (text) => new TextEncoder().encode(text);

function twice(name, ...args) {
  const hasher = new ContentHasher();
  hasher.finish();
  hasher[name](...args);
}

test("the platform's Request is accepted", () => {
  const request = new Request("http://a/", { headers: { "if-none-match": 'W/"v1", "v2"' } });
  assert.deepEqual(evaluatePreconditions(request, { etag: '"v1"' }), { outcome: "not-modified", status: 304 });
  assert.deepEqual(evaluatePreconditions(request, { etag: '"v3"' }), { outcome: "proceed" });
  const create = new Request("http://a/", { method: "PUT", headers: { "if-none-match": "*" } });
  assert.equal(evaluatePreconditions(create, null).outcome, "proceed");
  assert.equal(evaluatePreconditions(create, undefined).outcome, "proceed");
  assert.equal(evaluatePreconditions(create, {}).condition, "if-none-match");
});

test("each content coding has a tag", () => {
  const request = { method: "PUT", headers: new Headers({ "if-match": '"v1-gzip"' }) };
  assert.equal(evaluatePreconditions(request, { etag: ['"v1"', '"v1-gzip"'] }).outcome, "proceed");
  assert.equal(evaluatePreconditions(request, { etag: ['"v2"', '"v2-gzip"'] }).status, 412);
});

test("a date is a Date or a string", () => {
  const sent = "Thu, 01 Jan 1970 00:01:40 GMT";
  const request = { method: "PUT", headers: new Headers({ "if-unmodified-since": sent }) };
  for (const [date, outcome] of [
    [sent, "proceed"],
    [new Date(100_000), "proceed"],
    [new Date(100_001), "failed"],
    [new Date(101_000), "failed"],
  ]) {
    assert.equal(evaluatePreconditions(request, { lastModified: date }).outcome, outcome, String(date));
  }
});

test("an invalid tag, date, length or method is a TypeError", () => {
  const request = { method: "PUT", headers: new Headers() };
  for (const [call, what] of [
    [() => evaluatePreconditions(request, { etag: "v1" }), /quotes/],
    [() => evaluatePreconditions(request, { etag: [1] }), /quotes/],
    [() => evaluatePreconditions(request, { eTag: '"v1"' }), /"eTag" is no property/],
    [() => evaluatePreconditions(request, { etag: '"v1"', last_modified: new Date() }), /last_modified/],
    [() => evaluatePreconditions(request, '"v1"'), /object/],
    [() => selectRange({ method: "GET", headers: new Headers() }, { ETag: '"v1"', length: 5 }), /"ETag" is no property/],
    [() => selectRange({ method: "HEAD", headers: new Headers() }, { size: 5 }), /size/],
    [() => evaluatePreconditions(request, { lastModified: "yesterday" }), /lastModified/],
    [() => evaluatePreconditions(request, { lastModified: new Date(NaN) }), /lastModified/],
    [() => evaluatePreconditions({ method: "A B", headers: new Headers() }, null), /method/],
    [() => selectRange({ method: "GET", headers: new Headers() }, { length: 1.5 }), /length/],
    [() => selectRange({ method: "GET", headers: new Headers() }, {}), /length/],
    [() => selectRange({ method: "GET", headers: new Headers() }, { length: 2 ** 53 }), /length/],
    [() => strongMatch("v1", '"v1"'), /quotes/],
    [() => strongMatch('"\u4e2d"', '"v1"'), /quotes/],
    [() => strongMatch(1, '"v1"'), /text/],
    [() => lastModified(new Date(-1)), /1970/],
    [() => lastModified({ getTime: () => 5n }), /1970/],
    [() => evaluatePreconditions({ method: 5, headers: new Headers() }, null), /method/],
    [() => evaluatePreconditions({ method: "PUT", headers: { get: () => 5 } }, null), /if-match/],
    [() => evaluatePreconditions({ method: "PUT", headers: { get: async () => '"a"' } }, null), /if-match/],
    [() => evaluatePreconditions({ method: "PUT", headers: new Map([["if-match", ['"a"']]]) }, null), /if-match/],
    [() => isRetainedBy304(304, new Headers()), /text/],
    [() => contentTag("hello"), /TextEncoder/],
    [() => contentTag([1, 2]), /view/],
    [() => contentTag(undefined), /bytes/],
    [() => ContentHash.of("hello"), /bytes/],
    [() => evaluatePreconditions({ method: "PUT", headers: {} }, null), /new Headers\(fields\)/],
    [() => evaluatePreconditions({ method: "PUT" }, null), /new Headers\(fields\)/],
    [() => hasWriteCondition(undefined), /a request is an object/],
    [() => isRetainedBy304("vary", {}), /new Headers\(fields\)/],
    [() => twice("finish"), /hasher is finished/],
    [() => twice("update", bytes("")), /hasher is finished/],
    [() => new ContentHasher().update(5), /bytes/],
    [() => ContentHash.of(bytes("")).versionedTag(1), /bigint/],
    [() => ContentHash.of(bytes("")).versionedTag(-1n), /bigint/],
    [() => ContentHash.of(bytes("")).versionedTag(2n ** 64n), /bigint/],
  ]) {
    assert.throws(call, (error) => error instanceof TypeError && what.test(error.message), String(call));
    // The module still works.
    assert.equal(evaluatePreconditions({ method: "PUT", headers: new Map([["if-match", "*"]]) }, {}).outcome, "proceed");
  }
});

test("an invalid field has no meaning", () => {
  for (const odd of ['"a\u0001"', '"\u007f"', '"\ufffd"', '"\u4e2d"', '"\ud800"']) {
    const request = (method, name) => ({ method, headers: new Map([[name, odd]]) });
    assert.equal(evaluatePreconditions(request("PUT", "if-match"), { etag: '"a"' }).outcome, "failed", odd);
    assert.equal(evaluatePreconditions(request("GET", "if-none-match"), { etag: '"a"' }).outcome, "proceed", odd);
    assert.equal(evaluatePreconditions(request("PUT", "if-unmodified-since"), { etag: '"a"' }).outcome, "proceed", odd);
    assert.equal(hasWriteCondition(request("PUT", "if-match")), true);
    assert.equal(selectRange(request("GET", "range"), { length: 5 }).outcome, "whole", odd);
    const headers = new Map([["range", "bytes=0-0"], ["if-range", odd]]);
    assert.equal(selectRange({ method: "GET", headers }, { etag: '"a"', length: 5 }).outcome, "whole", odd);
  }
});

test("an error from the caller's headers is passed on", () => {
  const mine = new Error("mine");
  const headers = { get: () => { throw mine; } };
  assert.throws(() => evaluatePreconditions({ method: "GET", headers }, null), mine);
});

test("no number of exceptions from the caller's objects ends the module", () => {
  const mine = () => { throw new Error("mine"); };
  const request = { method: "GET", headers: new Map() };
  const detached = new Uint8Array(8);
  structuredClone(detached.buffer, { transfer: [detached.buffer] });
  for (const call of [
    () => evaluatePreconditions(null, null),
    () => evaluatePreconditions({ get method() { return mine(); } }, null),
    () => evaluatePreconditions({ method: "GET", get headers() { return mine(); } }, null),
    () => evaluatePreconditions(request, new Proxy({}, { ownKeys: mine })),
    () => hasWriteCondition(undefined),
    () => selectRange(null, { length: 5 }),
    () => contentTag(detached),
    () => contentTag(detached.buffer),
  ]) {
    for (let turn = 0; turn < 3_000; turn += 1) assert.throws(call);
    assert.equal(strongMatch('"a"', '"a"'), true, String(call));
  }
});

test("tags and digests are those of the bytes", () => {
  const hash = createHash("sha256").update("hello").digest();
  assert.equal(contentTag(bytes("hello")), `"${hash.toString("hex")}"`);
  const hasher = new ContentHasher();
  hasher.update(bytes("hel"));
  hasher.update(bytes("lo"));
  const found = hasher.finish();
  assert.equal(found.contentTag(), `"${hash.toString("hex")}"`);
  assert.equal(found.reprDigest(), `sha-256=:${hash.toString("base64")}:`);
  assert.notEqual(found.versionedTag(1n), found.versionedTag(2n));
  assert.equal(ContentHash.of(bytes("hello")).versionedTag(2n), found.versionedTag(2n));
});

test("bytes are a buffer or any view of it", () => {
  const all = bytes("..hello..");
  const expected = contentTag(bytes("hello"));
  assert.equal(contentTag(bytes("hello").buffer), expected);
  for (const View of [Uint8Array, Int8Array, DataView]) {
    assert.equal(contentTag(new View(all.buffer, 2, 5)), expected, View.name);
  }
  assert.equal(contentTag(Buffer.from("hello")), expected);
  assert.equal(contentTag(new Uint16Array([0x6568, 0x6c6c])), contentTag(bytes("hell")));
  assert.equal(ContentHash.of(bytes("hello").buffer).contentTag(), expected);
  const hasher = new ContentHasher();
  hasher.update(new DataView(all.buffer, 2, 5));
  assert.equal(hasher.finish().contentTag(), expected);
  // Longer than one copied chunk.
  for (const length of [(64 << 10) - 1, 64 << 10, (64 << 10) + 1, (1 << 20) + 3]) {
    const long = Uint8Array.from({ length }, (_, at) => at % 251);
    assert.equal(contentTag(long), `"${createHash("sha256").update(long).digest("hex")}"`);
  }
});

test("the largest lengths are exact", () => {
  const request = { method: "GET", headers: new Headers({ range: "bytes=-1" }) };
  const length = Number.MAX_SAFE_INTEGER;
  const { ranges } = selectRange(request, { length });
  assert.deepEqual(ranges, [{ start: length - 1, end: length - 1, contentRange: `bytes ${length - 1}-${length - 1}/${length}` }]);
});

test("If-Range with another version selects the whole", () => {
  const request = { method: "GET", headers: new Headers({ range: "bytes=0-0", "if-range": '"old"' }) };
  assert.deepEqual(selectRange(request, { etag: '"new"', length: 5 }), { outcome: "whole" });
  assert.equal(selectRange(request, { etag: '"old"', length: 5 }).outcome, "parts");
  assert.equal(selectRange({ ...request, method: "HEAD" }, { etag: '"old"', length: 5 }).outcome, "whole");
});

test("a date is sent once its second has begun", () => {
  assert.equal(lastModified(new Date(1_000)), "Thu, 01 Jan 1970 00:00:02 GMT");
  assert.equal(lastModified(new Date(1_999)), "Thu, 01 Jan 1970 00:00:02 GMT");
  assert.equal(lastModified(new Date(Date.now() + 5_000)), undefined);
});

test("a write without a condition is detected", () => {
  const request = (name, value) => ({ method: "PUT", headers: new Headers(name ? [[name, value]] : []) });
  assert.equal(hasWriteCondition(request()), false);
  assert.equal(hasWriteCondition(request("if-match", '"a"')), true);
  assert.equal(hasWriteCondition(request("if-modified-since", "Thu, 01 Jan 1970 00:01:40 GMT")), false);
});
