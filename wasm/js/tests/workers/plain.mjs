// A Worker of plain JavaScript that uses the package.
import { contentTag, evaluatePreconditions, selectRange } from "ifmatch";

const bytes = new TextEncoder().encode("hello");

export default {
  fetch(request) {
    const etag = contentTag(bytes);
    const verdict = evaluatePreconditions(request, { etag });
    if (verdict.outcome !== "proceed") return new Response(null, { status: verdict.status, headers: { etag } });
    const selection = selectRange(request, { etag, length: bytes.length });
    if (selection.outcome === "unsatisfiable") {
      return new Response(null, { status: 416, headers: { etag, "content-range": selection.contentRange } });
    }
    if (selection.outcome !== "parts") return new Response(bytes, { headers: { etag } });
    const [{ start, end, contentRange }] = selection.ranges;
    return new Response(bytes.subarray(start, end + 1), { status: 206, headers: { etag, "content-range": contentRange } });
  },
};
