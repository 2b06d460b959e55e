// What each runtime runs: an update, a save, and a conflict.
import { Client } from "ifmatch/client";

/** Returns what a client of this runtime sees at a server whose document is {"n": 5}. */
export async function add(url) {
  const [one, two] = [new Client({ stamps: true }), new Client()];
  const added = await one.update(url, ({ n }) => ({ n: n + 1 }));
  const read = await two.read(url);
  const saved = await one.save(added, { n: 7 });
  const late = await two.save(read, { n: 8 });
  return [added.value.n, read.value.n, saved.outcome, late.outcome, late.base.n, late.theirs.value.n];
}

export const EXPECTED = [6, 6, "saved", "conflict", 6, 7];

const at = globalThis.process?.argv?.at(-1);
if (at?.startsWith("http://")) console.log(JSON.stringify(await add(at)));
