// The settings of wrangler.toml for miniflare.
import path from "node:path";
import { modules } from "./modules.mjs";

const HOST = "127.0.0.1";
export const COMPATIBILITY_DATE = "2026-07-30";

// Returns miniflare's options: blobs on `port`, tables on `tables` if it is a port (0: a free one), state in `persist` if it is a
// folder. Direct sockets bypass miniflare's own Worker, which closes a connection after every rejected request. `bindings` are
// variables; `worker` overrides options of the Worker that serves blobs.
export function options({ folder, entry = "entry.js", port = 0, tables, persist, bindings = {}, worker = {} }) {
  const code = {
    modulesRoot: folder,
    modules: modules(folder, entry),
    compatibilityDate: COMPATIBILITY_DATE,
  };
  const blobs = {
    ...code,
    name: "ifmatch",
    r2Buckets: { BUCKET: "blobs" },
    durableObjects: { RECORDS: { className: "Records", useSQLite: true } },
    bindings: { IFMATCH_DEVELOPMENT: "true", ...bindings },
    unsafeDirectSockets: [{ host: HOST, port }],
    ...worker,
  };
  const workers = [blobs];
  if (tables !== undefined) {
    workers.push({
      ...blobs,
      ...code,
      name: "ifmatch-tables",
      durableObjects: { RECORDS: { className: "Records", scriptName: "ifmatch", useSQLite: true } },
      bindings: { ...blobs.bindings, IFMATCH_SERVES: "tables" },
      unsafeDirectSockets: [{ host: HOST, port: tables }],
    });
  }
  const state = persist && {
    r2Persist: path.join(persist, "r2"),
    durableObjectsPersist: path.join(persist, "records"),
  };
  return { host: HOST, port: 0, cf: false, telemetry: { enabled: false }, workers, ...state };
}

// Returns the URLs of a Worker with these options, once it runs.
export async function urls(miniflare, { tables } = {}) {
  await miniflare.ready;
  const of = (name) => miniflare.unsafeGetDirectURL(name);
  return { blobs: await of("ifmatch"), tables: tables === undefined ? undefined : await of("ifmatch-tables") };
}
