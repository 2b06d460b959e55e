// The stamp that a write leaves in a JSON document: it settles whether a write without a response took effect. The Rust library
// `ifmatch-client` reads and writes the same.
import { ClientError, decode, encode, type Bytes } from "./http.js";

const STAMP = "$ifmatch";
/** Number of remembered writes. */
const RECENT = 32;

export interface Stamp {
  /** Id of the first write. It tells this count of writes from another one after a write without a stamp. */
  chain: string;
  /** Number of writes. */
  writes: number;
  /** Ids of the last writes, this one at the end. */
  recent: string[];
  /** Largest fencing token of a write. */
  fence?: number;
  /** `true` if the document isn't a JSON object. */
  wrapped?: boolean;
}

/** Returns the stamp of the next write. */
export function next(previous: Stamp | undefined, id: string, fence?: number): Stamp {
  const { chain, writes, recent, fence: largest } = previous ?? { chain: id, writes: 0, recent: [] };
  const stamp: Stamp = { chain, writes: writes + 1, recent: [...recent, id].slice(-RECENT) };
  if (fence !== undefined || largest !== undefined) stamp.fence = Math.max(fence ?? 0, largest ?? 0);
  return stamp;
}

/** What a document's current stamp says about a write: whether it is the last one, one before that, not done, or untold. */
export function fate(ours: Stamp, current: Stamp | undefined, creates: boolean): "current" | "superseded" | "not done" | "untold" {
  if (!current) return "untold";
  const id = ours.recent.at(-1)!;
  if (current.recent.at(-1) === id) return "current";
  if (current.recent.includes(id)) return "superseded";
  // The current stamp names the write that has this one's place in the count.
  const later = current.writes - ours.writes;
  const namesRival = later >= 0 && later < current.recent.length;
  const sameChain = current.chain === ours.chain;
  return (sameChain && namesRival) || (creates && !sameChain) ? "not done" : "untold";
}

/** Returns JSON text with a stamp added. */
export function attach(json: string, stamp: Stamp): Bytes {
  const value = JSON.parse(json) as unknown;
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject && STAMP in value) throw new TypeError(`the member ${STAMP} is reserved`);
  const document = isObject ? { ...value, [STAMP]: stamp } : { value, [STAMP]: { ...stamp, wrapped: true } };
  return encode(JSON.stringify(document));
}

/** Returns the JSON text without its stamp, and the stamp. Other writers' text has none. */
export function detach(url: string, bytes: Bytes): { bytes: Bytes; stamp?: Stamp } {
  const value = parse(url, bytes);
  if (typeof value !== "object" || value === null || !(STAMP in value)) return { bytes };
  const { [STAMP]: found, ...rest } = value as Record<string, unknown>;
  const stamp = found as Stamp;
  if (!Array.isArray(stamp?.recent) || typeof stamp.chain !== "string" || typeof stamp.writes !== "number") {
    throw new ClientError("refused", `${url}: the member ${STAMP} isn't a stamp`);
  }
  return { bytes: encode(JSON.stringify(stamp.wrapped ? (rest.value ?? null) : rest)), stamp };
}

function parse(url: string, bytes: Bytes): unknown {
  try {
    return JSON.parse(decode(bytes));
  } catch (cause) {
    throw new ClientError("refused", `${url}: the document isn't JSON`, undefined, { cause });
  }
}
