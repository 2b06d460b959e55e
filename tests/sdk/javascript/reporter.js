// Prints failures and the number of passed cases.

import { inspect } from "node:util";

export default async function* report(events) {
  let [passed, failed] = [0, 0];
  for await (const { type, data } of events) {
    const grouped = data.details?.error?.failureType === "subtestsFailed";
    if (type === "test:pass" && data.details.type !== "suite") passed += 1;
    if (type === "test:fail" && !grouped) {
      failed += 1;
      yield `FAILED ${data.name}\n${reason(data.details.error)}\n`;
    }
    if (type === "test:stderr" || type === "test:stdout") yield data.message;
  }
  yield `${passed} passed, ${failed} failed\n`;
}

function reason({ cause, message }) {
  const text = typeof cause?.stack === "string" ? cause.stack : inspect(cause ?? message);
  return text.replace(/^/gm, "    ");
}
