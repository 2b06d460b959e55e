// Content, names, listings and headers of blobs.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { BlockBlobClient, StorageSharedKeyCredential } from "@azure/storage-blob";
import { blobs, collected, newBlob, newContainer, outcome, put, race, refused, test, text } from "./cases.js";

const MIB = 1 << 20;
const NAMES = {
  plain: "plain",
  spaces: "with spaces  in it",
  unicode: "ünïcödé/日本語/🦀",
  slashes: "a/b/c/d.txt",
  "empty segments": "empty//segments",
  "a slash at the end": "a folder's marker/",
  "reserved characters": "100% of a+b=c&d?e#f",
  quotes: "quote's \"and\" [brackets] {braces}",
  "1,024 characters": "x".repeat(1024),
};

function id(number) {
  return Buffer.from(String(number).padStart(4, "0")).toString("base64");
}

function sha256(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}

async function names(listing) {
  return (await collected(listing)).map(({ name }) => name);
}

async function fill(container, ...all) {
  for (const name of all) await put(container.getBlockBlobClient(name), name);
}

test("a large blob by blocks in parallel", async () => {
  const blob = (await newContainer()).getBlockBlobClient("large");
  const data = randomBytes(64 * MIB);
  // Both suites run at once, and the Worker rejects bodies of more than 32 MiB in all.
  await blob.uploadData(data, { blockSize: 4 * MIB, maxSingleShotSize: 4 * MIB, concurrency: 2 });
  assert.equal((await blob.getProperties()).contentLength, data.length);
  const read = await blob.downloadToBuffer(0, undefined, { blockSize: 4 * MIB, concurrency: 4 });
  assert.equal(sha256(read), sha256(data));
});

test("a blob has the MD5 of its bytes", async () => {
  const container = await newContainer();
  const blob = container.getBlockBlobClient("blob");
  const md5 = (content) => createHash("md5").update(content).digest();
  const known = async () => Buffer.from((await blob.getProperties()).contentMD5 ?? []);
  await put(blob, "first");
  assert.deepEqual(await known(), md5("first"), "it is computed");
  await put(blob, "second", { blobHTTPHeaders: { blobContentMD5: md5("second") } });
  assert.deepEqual(await known(), md5("second"), "it is given");
  const [{ properties }] = await collected(container.listBlobsFlat());
  assert.deepEqual(Buffer.from(properties.contentMD5), md5("second"));
  const sizes = { blockSize: 4, maxSingleShotSize: 4 };
  await blob.uploadData(Buffer.from("in blocks"), { ...sizes, blobHTTPHeaders: { blobContentMD5: md5("in blocks") } });
  assert.deepEqual(await known(), md5("in blocks"), "it is given for the blocks");
  const wrong = { blobHTTPHeaders: { blobContentMD5: md5("third") } };
  await refused(() => put(blob, "damaged", wrong), 400);
  assert.equal(await text(blob), "in blocks");
});

test("a listing includes what there is", async () => {
  const container = await newContainer();
  await newBlob(container);
  const all = ["Copy", "Deleted", "Metadata", "Snapshots", "Tags", "UncommitedBlobs", "Versions", "LegalHold"];
  const wanted = Object.fromEntries(all.map((name) => [`include${name}`, true]));
  assert.deepEqual(await names(container.listBlobsFlat(wanted)), ["blob"]);
});

test("a stream of unknown length", async () => {
  const blob = (await newContainer()).getBlockBlobClient("blob");
  const pieces = Array.from({ length: 7 }, (_, number) => Buffer.alloc(MIB / 2, number));
  await blob.uploadStream(Readable.from(pieces), MIB, 3);
  assert.equal(sha256(await blob.downloadToBuffer()), sha256(Buffer.concat(pieces)));
});

test("of writers by blocks one wins with all its bytes", async () => {
  const blob = (await newContainer()).getBlockBlobClient("blob");
  const conditions = { ifNoneMatch: "*" };
  const sizes = { blockSize: MIB / 4, maxSingleShotSize: MIB / 4, concurrency: 2, conditions };
  const data = [0, 1, 2].map((number) => Buffer.alloc(MIB, number));
  const answers = await race(3, (number) => outcome(() => blob.uploadData(data[number], sizes)));
  const losses = ["409 BlobAlreadyExists", "400 InvalidBlockList"];
  assert.equal(answers.filter((answer) => answer === "ok").length, 1, String(answers));
  assert(answers.every((answer) => answer === "ok" || losses.includes(answer)), String(answers));
  assert.equal(sha256(await blob.downloadToBuffer()), sha256(data[answers.indexOf("ok")]));
});

test("an empty blob", async () => {
  const blob = (await newContainer()).getBlockBlobClient("empty");
  await put(blob, "");
  assert.equal((await blob.getProperties()).contentLength, 0);
  assert.deepEqual(await collected((await blob.download()).readableStreamBody), []);
});

for (const [kind, name] of Object.entries(NAMES)) {
  test(`a name with ${kind}`, async () => {
    const container = await newContainer();
    const blob = container.getBlockBlobClient(name);
    await put(blob, name);
    assert.equal(await text(blob), name);
    assert.deepEqual(await names(container.listBlobsFlat()), [name]);
    await refused(() => container.getBlobClient(`~${name.slice(2)}`).getProperties(), 404, "BlobNotFound");
    await blob.delete();
    assert.equal(await blob.exists(), false);
  });
}

test("lists by prefix delimiter and page", async () => {
  const container = await newContainer();
  const folders = ["a", "b", "b c", "ü"];
  const all = [...folders.flatMap((folder) => [0, 1, 2].map((number) => `${folder}/${number}`)), "top"].sort();
  await fill(container, ...all);
  assert.deepEqual(await names(container.listBlobsFlat()), all);
  assert.deepEqual(await names(container.listBlobsFlat({ prefix: "b" })), all.filter((name) => name.startsWith("b")));
  const top = await names(container.listBlobsByHierarchy("/"));
  assert.deepEqual(top.sort(), ["a/", "b c/", "b/", "top", "ü/"]);
  assert.deepEqual(await names(container.listBlobsByHierarchy("/", { prefix: "b/" })), ["b/0", "b/1", "b/2"]);
  assert.deepEqual(await names(container.listBlobsFlat({ prefix: "none" })), []);
  const pages = await collected(container.listBlobsFlat().byPage({ maxPageSize: 4 }));
  const sizes = pages.map(({ segment }) => segment.blobItems.length);
  assert.deepEqual([Math.max(...sizes), sizes.reduce((a, b) => a + b)], [4, all.length]);
});

test("a listing continues at its marker", async () => {
  const container = await newContainer();
  await fill(container, "0", "1", "2", "3", "4");
  const { value: first } = await container.listBlobsFlat().byPage({ maxPageSize: 2 }).next();
  assert.deepEqual(first.segment.blobItems.map(({ name }) => name), ["0", "1"]);
  const later = container.listBlobsFlat().byPage({ maxPageSize: 2, continuationToken: first.continuationToken });
  const rest = (await collected(later)).map(({ segment }) => segment.blobItems.map(({ name }) => name));
  assert.deepEqual(rest, [["2", "3"], ["4"]]);
});

test("listings match properties", async () => {
  const container = await newContainer();
  const blob = await newBlob(container);
  await blob.setHTTPHeaders({ blobContentType: "text/plain", blobCacheControl: "no-cache" });
  await blob.setMetadata({ colour: "red" });
  const [{ properties, metadata }] = await collected(container.listBlobsFlat({ includeMetadata: true }));
  const known = await blob.getProperties();
  for (const name of ["contentLength", "contentType", "cacheControl", "lastModified", "blobType"]) {
    assert.deepEqual(properties[name], known[name], name);
  }
  assert.equal(`"${properties.etag}"`, known.etag, "in a list it stands without quotes");
  assert.deepEqual([metadata, known.metadata], [{ colour: "red" }, { colour: "red" }]);
});

test("metadata and headers", async () => {
  const blob = (await newContainer()).getBlockBlobClient("blob");
  const blobHTTPHeaders = {
    blobContentType: "text/plain; charset=utf-8",
    blobContentLanguage: "en",
    blobContentDisposition: 'attachment; filename="x"',
    blobCacheControl: "max-age=60",
  };
  await put(blob, "x", { blobHTTPHeaders, metadata: { colour: "red" } });
  const { contentType, contentLanguage, contentDisposition, cacheControl, metadata } = await blob.getProperties();
  assert.deepEqual([contentType, contentLanguage, contentDisposition, cacheControl], Object.values(blobHTTPHeaders));
  assert.deepEqual(metadata, { colour: "red" });
  await blob.setMetadata({ shape: "round" });
  await blob.setHTTPHeaders({ blobContentType: "text/html" });
  const known = await blob.getProperties();
  assert.deepEqual([known.metadata, known.contentType, known.cacheControl], [{ shape: "round" }, "text/html", undefined]);
  await put(blob, "y");
  assert.deepEqual((await blob.getProperties()).metadata, {}, "a new blob begins without");
});

test("ranges", async () => {
  const blob = (await newContainer()).getBlockBlobClient("blob");
  await put(blob, "0123456789");
  for (const [offset, count, content] of [[0, 1, "0"], [2, 3, "234"], [7, 100, "789"], [9, undefined, "9"]]) {
    const response = await blob.download(offset, count);
    assert.equal(Buffer.concat(await collected(response.readableStreamBody)).toString(), content);
    assert.equal(response.contentRange, `bytes ${offset}-${offset + content.length - 1}/10`);
  }
});

for (const start of [5, 100]) {
  test(`range behind the end: ${start}`, async () => {
    const blob = await newBlob();
    await refused(() => blob.download(start, 1), 416, "InvalidRange");
  });
}

test("blocks are committed in the order of the list", async () => {
  const blob = (await newContainer()).getBlockBlobClient("blob");
  for (const number of [3, 1, 2]) await blob.stageBlock(id(number), `[${number}]`, 3);
  const staged = await blob.getBlockList("all");
  assert.deepEqual(staged.uncommittedBlocks.map(({ name }) => name).sort(), [id(1), id(2), id(3)]);
  assert.equal(await blob.exists(), false, "staged blocks are no blob yet");
  await blob.commitBlockList([id(1), id(3), id(1)], { metadata: { colour: "red" } });
  assert.equal(await text(blob), "[1][3][1]");
  assert.deepEqual((await blob.getProperties()).metadata, { colour: "red" });
  const { committedBlocks, uncommittedBlocks = [] } = await blob.getBlockList("all");
  assert.deepEqual(committedBlocks.map(({ name }) => name), [id(1), id(3), id(1)]);
  assert.deepEqual(uncommittedBlocks, [], "blocks that are not in the list are discarded");
  await blob.stageBlock(id(4), "[4]", 3);
  await blob.commitBlockList([id(3), id(4)]);
  assert.equal(await text(blob), "[3][4]", "committed blocks can be used again");
});

test("missing blobs and containers", async () => {
  const container = await newContainer();
  const absent = container.getBlockBlobClient("absent");
  const nowhere = blobs.getContainerClient(`${container.containerName}-none`);
  assert.deepEqual([await absent.exists(), await nowhere.exists()], [false, false]);
  for (const call of [() => absent.download(), () => absent.getProperties(), () => absent.delete()]) {
    await refused(call, 404, "BlobNotFound");
  }
  await refused(() => put(nowhere.getBlockBlobClient("x"), "x"), 404, "ContainerNotFound");
  await refused(() => nowhere.listBlobsFlat().next(), 404, "ContainerNotFound");
  assert.equal((await nowhere.deleteIfExists()).succeeded, false);
});

test("containers", async () => {
  const container = await newContainer();
  await refused(() => container.create(), 409, "ContainerAlreadyExists");
  assert.equal((await container.createIfNotExists()).succeeded, false);
  const before = await container.getProperties();
  await container.setMetadata({ colour: "red" });
  const after = await container.getProperties();
  assert.deepEqual([before.metadata, after.metadata], [{}, { colour: "red" }]);
  assert.notEqual(before.etag, after.etag);
  const all = await names(blobs.listContainers({ prefix: container.containerName }));
  assert.deepEqual(all, [container.containerName]);
  await container.delete();
  assert.equal(await container.exists(), false);
});

test("the blob service tells its properties and statistics", async () => {
  assert.equal((await blobs.getProperties()).hourMetrics.enabled, false);
  assert.equal((await blobs.getStatistics()).geoReplication.status, "unavailable");
  assert.equal((await blobs.getAccountInfo()).accountKind, "StorageV2");
});

test("a wrong key gives no access to blobs", async () => {
  const blob = await newBlob();
  const wrong = new StorageSharedKeyCredential(blob.accountName, Buffer.from("another key").toString("base64"));
  const stranger = new BlockBlobClient(blob.url, wrong);
  await refused(() => put(stranger, "changed"), 403, "AuthenticationFailed");
  await refused(() => stranger.getProperties(), 403, "AuthenticationFailed");
  assert.equal(await text(blob), "first");
});
