import { Hono } from "hono";
import { conditional, preconditionFailed, replaces } from "ifmatch/hono";

// CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT, version TEXT);
const find = (c) => c.env.DB.prepare("SELECT text, version FROM notes WHERE id = ?").bind(c.req.param("id")).first();
const tag = (note) => note && `"${note.version}"`;

const app = new Hono();
app.use("/:id", conditional({ current: async (c) => tag(await find(c)), required: true }));
app.get("/:id", async (c) => {
  const note = await find(c);
  return note ? c.text(note.text, 200, { etag: tag(note) }) : c.notFound();
});
app.put("/:id", async (c) => {
  const [id, text, version, next] = [c.req.param("id"), await c.req.text(), replaces(c), crypto.randomUUID()];
  // Another write may have come since the middleware asked: the database compares and writes in one step.
  const write = version
    ? c.env.DB.prepare("UPDATE notes SET text = ?, version = ? WHERE id = ? AND '\"' || version || '\"' = ? RETURNING version").bind(text, next, id, version.etag)
    : c.env.DB.prepare("INSERT INTO notes VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING version").bind(id, text, next);
  const saved = await write.first();
  return saved ? c.body(null, 204, { etag: tag(saved) }) : preconditionFailed();
});
app.delete("/:id", async (c) => {
  const removal = c.env.DB.prepare("DELETE FROM notes WHERE id = ? AND '\"' || version || '\"' = ? RETURNING version");
  const removed = await removal.bind(c.req.param("id"), replaces(c)?.etag ?? null).first();
  return removed ? c.body(null, 204) : preconditionFailed();
});

export default app;
