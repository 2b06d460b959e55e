// Keeps the live parts of a page current, and counts seconds. Everything else works without it.
"use strict";

const AGAIN = 10_000;
let stream;
let page;

// The gateway sends the page whenever it has changed. A page that is not seen needs no stream.
function follow() {
  stream?.close();
  stream = undefined;
  if (document.hidden || !document.querySelector("[data-live]")) return;
  stream = new EventSource(location.href);
  stream.addEventListener("page", (event) => {
    page = new DOMParser().parseFromString(event.data, "text/html");
    show();
  });
  // The session has ended.
  stream.addEventListener("end", () => {
    stream.close();
    location.reload();
  });
  // The browser connects again by itself, unless the gateway has refused: too many pages are open.
  stream.addEventListener("error", ({ target }) => {
    if (target === stream && target.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN);
  });
}

function show() {
  for (const part of page?.querySelectorAll("[data-live]") ?? []) {
    const shown = document.getElementById(part.id);
    // Nothing moves under the keyboard of a reader. The part waits until the focus is elsewhere.
    if (shown && !shown.contains(document.activeElement)) shown.replaceWith(document.adoptNode(part));
  }
}

function span(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

function count() {
  const times = [document, page].flatMap((part) => [...(part?.querySelectorAll("[data-seconds]") ?? [])]);
  for (const time of times) {
    const seconds = Math.max(0, Number(time.dataset.seconds) + Number(time.dataset.step));
    time.dataset.seconds = seconds;
    time.textContent = span(seconds) + (time.dataset.step === "1" ? " ago" : "");
  }
}

document.addEventListener("visibilitychange", follow);
// What has changed meanwhile.
document.addEventListener("focusout", () => setTimeout(show));
setInterval(count, 1000);
follow();
