// The operations named in the tables in ../cases, on a blob or container client.

import { randomUUID } from "node:crypto";
import { put } from "./cases.js";

const BLOCK = Buffer.from("0001").toString("base64");
const HOUR = 3_600_000;

export function stage(blob) {
  return blob.stageBlock(BLOCK, "block", 5);
}

export const operations = {
  get: (blob, conditions) => blob.downloadToBuffer(0, 1, { conditions }),
  head: (blob, conditions) => blob.getProperties({ conditions }),
  put: (blob, conditions) => put(blob, "second", { conditions }),
  create: (blob, conditions) => put(blob, "second", { conditions: { ifNoneMatch: "*", ...conditions } }),
  blocklist: (blob, conditions) => blob.commitBlockList([BLOCK], { conditions }),
  metadata: (blob, conditions) => blob.setMetadata({ colour: "red" }, { conditions }),
  properties: (blob, conditions) => blob.setHTTPHeaders({ blobContentType: "text/plain" }, { conditions }),
  delete: (blob, conditions) => blob.delete({ conditions }),
  acquire: (blob, conditions) => blob.getBlobLeaseClient(randomUUID()).acquireLease(15, { conditions }),
  "container-delete": (container, conditions) => container.delete({ conditions }),
  "container-acquire": (container, conditions) =>
    container.getBlobLeaseClient(randomUUID()).acquireLease(15, { conditions }),
};

const NAMES = {
  "if-match": "ifMatch",
  "if-none-match": "ifNoneMatch",
  "if-modified-since": "ifModifiedSince",
  "if-unmodified-since": "ifUnmodifiedSince",
};
const DATES = { before: -HOUR, same: 0, after: HOUR };

/** Returns the conditions for text such as `if-match=current+if-unmodified-since=after`. */
export function conditions(text, { etag, lastModified }) {
  const tags = { current: etag, stale: '"0x0000000000000000"', "*": "*" };
  const value = (word) => (word in DATES ? new Date(lastModified.getTime() + DATES[word]) : tags[word]);
  const fields = text.split("+").map((part) => part.split("="));
  return Object.fromEntries(fields.map(([name, word]) => [NAMES[name], value(word)]));
}
