import express from "express";
import { contentTag } from "ifmatch";
import { conditional, preconditionFailed, replaces } from "ifmatch/node";

const notes = new Map();
const tag = (text) => (text === undefined ? null : contentTag(new TextEncoder().encode(text)));

const app = express();
app.use("/:id", express.text({ type: () => true }), conditional({ current: (req) => tag(notes.get(req.params.id)), required: true }));
app.get("/:id", (req, res) => {
  const text = notes.get(req.params.id);
  if (text === undefined) res.sendStatus(404);
  else res.set("etag", tag(text)).type("text/plain").send(text);
});
app.put("/:id", (req, res) => {
  const version = replaces(req);
  if (tag(notes.get(req.params.id)) !== (version?.etag ?? null)) return preconditionFailed(res);
  notes.set(req.params.id, req.body);
  res.set("etag", tag(req.body)).sendStatus(204);
});

export default app;
