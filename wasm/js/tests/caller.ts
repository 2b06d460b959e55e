// Compiled, not run: checks the declarations of the blobs for other Workers, with the runtime's types.
import type { Blobs, BlobsError, Refused } from "ifmatch/worker";

interface Env {
  BLOBS: Service<Blobs>;
}

export default {
  async fetch(request, { BLOBS }): Promise<Response> {
    const found = await BLOBS.get("docs/a", { range: { offset: 1, length: 2 } });
    if (!found.ok) return refused(found);
    const text: string = await new Response(found.body).text();
    const saved = await BLOBS.put("docs/a", text, { ifMatch: found.etag, contentType: found.contentType ?? "text/plain" });
    if (!saved.ok) return refused(saved);
    await BLOBS.put("docs/b", request.body ?? "", { size: 5, metadata: { by: "me" } });
    const lease = await BLOBS.acquireLease("docs/a", { seconds: 30 });
    if (!lease.ok) return refused(lease);
    const renewed = await BLOBS.renewLease("docs/a", lease.id);
    const left: number | null = renewed.ok ? renewed.remaining : null;
    const released = await BLOBS.releaseLease("docs/a", lease.id);
    const broken = await BLOBS.breakLease("docs/a");
    return Response.json({ created: saved.created, left, released, broken });
  },
} satisfies ExportedHandler<Env>;

function refused({ status, code, detail, etag, retryAfter }: Refused): Response {
  const known: 404 | 409 | 412 | 428 = status;
  return Response.json({ code, detail, etag, retryAfter }, { status: known });
}

export async function mistakes({ BLOBS }: Env, error: BlobsError): Promise<void> {
  const found = await BLOBS.head("docs/a");
  // @ts-expect-error a refusal has no size
  console.log(found.size, error.code);
  // @ts-expect-error the option is ifMatch
  await BLOBS.put("docs/a", "x", { ifmatch: "*" });
  // @ts-expect-error a version that was not read has no tag
  await BLOBS.put("docs/a", "x", { ifMatch: found.ok ? found.etag : null });
  // @ts-expect-error a lease has a duration
  await BLOBS.acquireLease("docs/a", {});
}
