/**
 * Merges two changes of one text, line by line. Where both have changed the same lines, it keeps both: theirs, then what is new in mine.
 */
export function merge(base, mine, theirs) {
  const [b, m, t] = [base, mine, theirs].map((text) => text.split("\n"));
  const [inMine, inTheirs] = [matches(b, m), matches(b, t)];
  const merged = [];
  let [i, j, k] = [0, 0, 0];
  for (let line = 0; line <= b.length; line += 1) {
    const isEnd = line === b.length;
    // Between two lines that all three have is a change: mine, theirs, or of both.
    if (!isEnd && (inMine[line] === undefined || inTheirs[line] === undefined)) continue;
    const [to, mineTo, theirsTo] = isEnd ? [b.length, m.length, t.length] : [line, inMine[line], inTheirs[line]];
    merged.push(...chunk(b.slice(i, to), m.slice(j, mineTo), t.slice(k, theirsTo)));
    if (!isEnd) merged.push(b[line]);
    [i, j, k] = [to + 1, mineTo + 1, theirsTo + 1];
  }
  return merged.join("\n");
}

/** Returns where a caret belongs in a merged text: on its line, which others' lines may have moved. */
export function follow(before, after, at) {
  const lines = before.slice(0, at).split("\n");
  const [column, places] = [lines.pop().length, matches(before.split("\n"), after.split("\n"))];
  const place = places[lines.length] ?? lines.length;
  const start = after.split("\n").slice(0, place).reduce((sum, line) => sum + line.length + 1, 0);
  return Math.min(start + column, after.length);
}

function chunk(base, mine, theirs) {
  const same = (a, b) => a.length === b.length && a.every((line, at) => line === b[at]);
  if (same(mine, base) || same(mine, theirs)) return theirs;
  if (same(theirs, base)) return mine;
  return [...theirs, ...mine.filter((line) => !base.includes(line) && !theirs.includes(line))];
}

/** Returns, for each line of `base` in a longest common subsequence with `text`, its place in `text`. */
function matches(base, text) {
  const lengths = Array.from({ length: base.length + 1 }, () => new Uint32Array(text.length + 1));
  for (let i = base.length - 1; i >= 0; i -= 1) {
    for (let j = text.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = base[i] === text[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const places = Array(base.length);
  for (let [i, j] = [0, 0]; i < base.length && j < text.length; ) {
    if (base[i] === text[j]) places[i++] = j++;
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return places;
}
