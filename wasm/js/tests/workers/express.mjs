import express from "express";
import { conditional, preconditionFailed, replaces } from "ifmatch/node";

const notes = new Map();

const app = express();
app.use("/:id", express.text({ type: () => true }), conditional({ current: (req) => notes.get(req.params.id)?.etag, required: true }));
app.get("/:id", (req, res) => {
  const note = notes.get(req.params.id);
  if (note) res.set("etag", note.etag).type("text/plain").send(note.text);
  else res.sendStatus(404);
});
app.put("/:id", (req, res) => {
  if (notes.get(req.params.id)?.etag !== replaces(req)?.etag) return preconditionFailed(res);
  const etag = `"${crypto.randomUUID()}"`;
  notes.set(req.params.id, { text: req.body, etag });
  res.set("etag", etag).sendStatus(204);
});

export default app;
