// All rows of the RFC tables, through JavaScript.
import assert from "node:assert/strict";
import { test } from "node:test";

import { evaluatePreconditions, isRetainedBy304, selectRange, strongMatch, weakMatch } from "ifmatch";
import { current, fields, rows } from "./tables.mjs";

/** `Headers` that accept any method's request and any byte, as a server's do. */
function headers(lines) {
  const found = new Headers();
  for (const [name, value] of lines) found.append(name, value);
  return found;
}

/** Whether JavaScript's own `Headers` could have such a value. */
const isValue = ([, value]) => !/[\u0000\r\n]/.test(value);

for (const name of ["if_match", "if_unmodified_since", "if_none_match", "if_modified_since", "precedence", "methods"]) {
  test(name, () => {
    let checked = 0;
    for (const [methods, lines, state, expected] of rows(name)) {
      for (const method of methods.split(" ")) {
        const verdict = evaluatePreconditions({ method, headers: headers(fields(lines).filter(isValue)) }, current(state));
        const got = { proceed: "proceed", "not-modified": "304", failed: `412 ${verdict.condition}` }[verdict.outcome];
        assert.equal(got, expected, `${method} | ${lines} | ${state}`);
        assert.equal(verdict.status, { proceed: undefined, "not-modified": 304, failed: 412 }[verdict.outcome]);
        checked += 1;
      }
    }
    assert.ok(checked >= 10);
  });
}

test("comparison", () => {
  for (const [left, right, strong, weak] of rows("comparison")) {
    assert.equal(strongMatch(left, right), strong === "yes", `${left} ${right}`);
    assert.equal(weakMatch(left, right), weak === "yes", `${left} ${right}`);
  }
});

test("ranges", () => {
  for (const [lines, length, expected] of rows("ranges")) {
    // JavaScript has no larger lengths. Another test checks their rejection.
    if (!Number.isSafeInteger(Number(length))) continue;
    const selection = selectRange({ method: "GET", headers: headers(fields(lines)) }, { length: Number(length) });
    const got = {
      whole: () => "whole",
      unsatisfiable: () => "416",
      parts: () => selection.ranges.map(({ start, end }) => `${start}-${end}`).join(" "),
    }[selection.outcome]();
    assert.equal(got, expected, `${lines} of ${length}`);
  }
});

test("not_modified", () => {
  for (const [lines, expected] of rows("not_modified")) {
    const all = headers(fields(lines));
    const kept = fields(lines).map(([name]) => name).filter((name) => isRetainedBy304(name, all)).sort();
    assert.deepEqual(kept, expected === "-" ? [] : expected.split(" "), lines);
  }
});
