// Reads the RFC tables that the Rust tests use as well.
import { readFileSync } from "node:fs";

const folder = new URL("../../../crates/ifmatch-core/tests/data/", import.meta.url);

/** The rows of a table: `|` between the columns, `#` begins a comment, `\xff` is a byte. */
export function rows(name) {
  const lines = readFileSync(new URL(`${name}.txt`, folder), "utf8").split("\n");
  const rows = lines.filter((line) => line && !line.startsWith("#")).map((line) => line.split(" | ").map(bytes));
  if (rows.length < 5) throw new Error(`${name}.txt has hardly any rows`);
  return rows;
}

function bytes(text) {
  return text.trim().replace(/\\x([0-9a-f]{2})/g, (_, digits) => String.fromCharCode(parseInt(digits, 16)));
}

/** The header fields of a column: `name: value ;; name: value`, or `-`. */
export function fields(column) {
  if (column === "-") return [];
  return column.split(" ;; ").map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  });
}

/** The tags and the date of a column: `"a" W/"b" @100`, `-` for neither, `absent` for no representation. */
export function current(column) {
  if (column === "absent") return null;
  const etag = column.match(/(?:W\/)?"[^"]*"/g) ?? [];
  const seconds = column.match(/@(-?\d+)$/)?.[1];
  return { etag, lastModified: seconds === undefined ? null : new Date(Number(seconds) * 1000) };
}
