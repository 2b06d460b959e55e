// Serves the Worker until the standard input ends or a signal arrives:
//   node serve.mjs --modules DIR [--port PORT] [--tables PORT] [--persist DIR]
import { parseArgs } from "node:util";
import { Miniflare } from "miniflare";
import { options, urls } from "./options.mjs";

const { values } = parseArgs({
  options: {
    modules: { type: "string" },
    port: { type: "string", default: "8787" },
    tables: { type: "string" },
    persist: { type: "string" },
  },
});

const miniflare = new Miniflare(
  options({
    folder: values.modules,
    port: Number(values.port),
    tables: values.tables && Number(values.tables),
    persist: values.persist,
  }),
);

let stopping = false;
async function stop() {
  if (!stopping) {
    stopping = true;
    await miniflare.dispose();
    process.exit(0);
  }
}
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, stop);
}
process.stdin.resume().on("end", stop);

const { blobs, tables } = await urls(miniflare, values);
console.log(`blobs on ${blobs.origin}`);
if (tables) {
  console.log(`tables on ${tables.origin}`);
}
