// Requests in Azure's dialect, signed with the development account's key.
import { createHmac } from "node:crypto";

const ACCOUNT = "devstoreaccount1";
const KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

// Returns the target and options of a request for `path`, such as `/docs/a.txt?comp=lease`.
export function signed(method, path, headers = {}) {
  const url = new URL(path, "http://host");
  const all = { ...headers, "x-ms-date": new Date().toUTCString(), "x-ms-version": "2025-05-05" };
  const own = Object.keys(all).filter((name) => name.startsWith("x-ms-")).sort();
  const query = [...url.searchParams].map(([name, value]) => `${name}:${value}`).sort();
  const standard = ["content-encoding", "content-language", "content-length", "content-md5", "content-type", "date", "if-modified-since"];
  const rest = ["if-match", "if-none-match", "if-unmodified-since", "range"];
  const text = [
    method,
    ...[...standard, ...rest].map((name) => all[name] ?? ""),
    ...own.map((name) => `${name}:${all[name]}`),
    `/${ACCOUNT}/${ACCOUNT}${url.pathname}`,
    ...query,
  ].join("\n");
  const signature = createHmac("sha256", Buffer.from(KEY, "base64")).update(text).digest("base64");
  return [`/${ACCOUNT}${path}`, { method, headers: { ...all, authorization: `SharedKey ${ACCOUNT}:${signature}` } }];
}

// Returns a request for an infinite lease of a blob.
export function acquire(path, id) {
  const headers = { "x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1", "x-ms-proposed-lease-id": id };
  return signed("PUT", `${path}?comp=lease`, headers);
}
