// Hono with its etag middleware, which hashes each body.
import { Hono } from "hono";
import { etag } from "hono/etag";

const app = new Hono();
app.use(etag());
app.get("/*", async (c) => {
  const object = await c.env.BUCKET.get(c.req.path.slice(1));
  return object ? c.body(object.body) : c.notFound();
});
app.put("/*", async (c) => {
  await c.env.BUCKET.put(c.req.path.slice(1), c.req.raw.body);
  return c.body(null, 204);
});

export default app;
