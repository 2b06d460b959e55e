// A Worker that uses another Worker's blobs through a service binding.

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (request.method !== "POST") return new Response("send POST /visits or POST /report\n", { status: 405, headers: { allow: "POST" } });
    if (pathname === "/visits") return Response.json({ visits: await count(env.BLOBS) });
    if (pathname === "/report") return report(env.BLOBS);
    return new Response("not found\n", { status: 404 });
  },
};

/** Counts a visit. If several callers read the same number, one writes the next, and the others start over. */
async function count(blobs) {
  for (;;) {
    const found = await blobs.get("site/visits");
    const visits = found.ok ? Number(await new Response(found.body).text()) + 1 : 1;
    const condition = found.ok ? { ifMatch: found.etag } : { ifNoneMatch: "*" };
    const saved = await blobs.put("site/visits", String(visits), condition);
    if (saved.ok) return visits;
    // R2 takes one write of a blob per second.
    await scheduler.wait(1000 * Math.max(saved.retryAfter ?? 0, Math.random()));
  }
}

/** Writes a report while no other caller does. */
async function report(blobs) {
  await blobs.put("site/report", "", { ifNoneMatch: "*" });
  const lease = await blobs.acquireLease("site/report", { seconds: 30, holder: "report" });
  if (!lease.ok) return Response.json(lease, { status: lease.status });
  const saved = await blobs.put("site/report", `written at ${new Date().toISOString()}`, { leaseId: lease.id });
  await blobs.releaseLease("site/report", lease.id);
  return Response.json(saved, { status: saved.ok ? 200 : saved.status });
}
