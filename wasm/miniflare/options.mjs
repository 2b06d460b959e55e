// How the Worker is run on this machine: what wrangler.toml says, for miniflare.
import fs from "node:fs";
import path from "node:path";

const HOST = "127.0.0.1";
const COMPATIBILITY_DATE = "2026-07-30";

// The modules of a folder; the entry comes first.
function modules(folder, entry) {
  const files = fs.readdirSync(folder, { recursive: true }).filter((file) => /\.(js|wasm)$/.test(file));
  files.sort((a, b) => (b === entry) - (a === entry));
  return files.map((file) => ({
    type: file.endsWith(".wasm") ? "CompiledWasm" : "ESModule",
    path: path.join(folder, file),
  }));
}

// The options of miniflare: blobs on `port`, tables on `tables` if it is a port (0: a free one), state in `persist` if it
// is a folder. `bindings` are variables; `worker` overrides what concerns the Worker that serves blobs.
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
  return { host: HOST, port, cf: false, telemetry: { enabled: false }, workers, ...state };
}
