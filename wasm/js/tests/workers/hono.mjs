// A Worker on Hono that uses the package.
import { Hono } from "hono";
import { contentTag, evaluatePreconditions, hasWriteCondition } from "ifmatch";

let note = "hello";
const tag = () => contentTag(new TextEncoder().encode(note));
const app = new Hono();

app.use("/note", async (c, next) => {
  if (c.req.method === "PUT" && !hasWriteCondition(c.req.raw)) return c.text("If-Match is required\n", 428);
  const verdict = evaluatePreconditions(c.req.raw, { etag: tag() });
  if (verdict.outcome !== "proceed") return c.body(null, verdict.status, { etag: tag() });
  await next();
  c.header("etag", tag());
});
app.get("/note", (c) => c.text(note));
app.put("/note", async (c) => {
  note = await c.req.text();
  return c.body(null, 204);
});

export default app;
