// Keeps the live parts of a page current, and counts the seconds of leases. Everything else works without it.
"use strict";

const EVERY = 2000;

async function refresh() {
  const parts = document.querySelectorAll("[data-live]");
  if (parts.length > 0 && !document.hidden) {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      // The session has ended.
      if (answer.status === 401) return location.reload();
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of parts) {
          const next = page.getElementById(part.id);
          // Nothing moves under the keyboard or the pointer of a reader.
          if (next && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(next));
        }
      }
    } catch {
      // The gateway is away: the page stays as it is until it is back.
    }
  }
  setTimeout(refresh, EVERY);
}

function count() {
  for (const time of document.querySelectorAll("[data-seconds]")) {
    const left = Math.max(0, Number(time.dataset.seconds) - 1);
    time.dataset.seconds = left;
    time.textContent = `${left} s`;
  }
}

setTimeout(refresh, EVERY);
setInterval(count, 1000);
