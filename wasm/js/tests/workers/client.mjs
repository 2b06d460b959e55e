import { Client } from "ifmatch/client";

const client = new Client();
export const read = (url) => client.read(url);

// Saves a text over the version that was read. If someone else was first, keeps both texts; a page would merge base, theirs and mine.
export async function save(note, text) {
  const saved = await client.save(note, { ...note.value, text });
  if (saved.outcome === "saved") return saved.version;
  if (saved.outcome !== "conflict") throw new Error(saved.outcome); // it was, or may have been, written: ask the user
  const { theirs, mine } = saved;
  return save(theirs, [theirs.value?.text, mine.text].join("\n"));
}

// Reads, adds one and saves, again if someone else was first.
export const count = (url) => client.update(url, (hits) => ({ count: (hits?.count ?? 0) + 1 }));
