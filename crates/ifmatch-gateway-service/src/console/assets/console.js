// Keeps the live parts of a page current, counts seconds, filters lists and copies tags. Everything else works without it.
"use strict";

const AGAIN = 10_000;
const COPIED = 1500;
let stream;
let page;

// What works with scripts only is shown.
document.documentElement.classList.add("has-scripts");

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

// Nothing moves under the keyboard or the mouse of a reader. A part waits until the focus and the selection are elsewhere.
function isInUse(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) || !selection.isCollapsed && selection.containsNode(part, true);
}

function show() {
  for (const part of page?.querySelectorAll("[data-live]") ?? []) {
    const shown = document.getElementById(part.id);
    if (!shown || isInUse(shown)) continue;
    const open = [...shown.querySelectorAll("details")].map((details) => details.open);
    const next = document.adoptNode(part);
    next.querySelectorAll("details").forEach((details, nr) => (details.open = open[nr] ?? false));
    shown.replaceWith(next);
  }
  document.querySelectorAll("[data-filter]").forEach(filter);
}

// Hides the rows of a list that do not have the text in their first column.
function filter(input) {
  if (input.value === input.defaultValue && !input.dataset.filtered) return;
  input.dataset.filtered = "true";
  const wanted = input.value.trim().toLowerCase();
  for (const row of document.querySelectorAll(`#${input.dataset.filter} tbody tr`)) {
    row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  }
}

function span(seconds) {
  for (const [limit, unit, name] of [[120, 1, "second"], [7200, 60, "minute"], [172_800, 3600, "hour"], [Infinity, 86_400, "day"]]) {
    if (seconds >= limit) continue;
    const count = Math.round(seconds / unit);
    return `${count} ${name}${count === 1 ? "" : "s"}`;
  }
}

function count() {
  const times = [document, page].flatMap((part) => [...(part?.querySelectorAll("[data-seconds]") ?? [])]);
  for (const time of times) {
    const seconds = Math.max(0, Number(time.dataset.seconds) + Number(time.dataset.step));
    time.dataset.seconds = seconds;
    const text = span(seconds) + (time.dataset.step === "1" ? " ago" : "");
    // A text that stays the same stays selected.
    if (time.textContent !== text && (time.ownerDocument !== document || !isInUse(time))) time.textContent = text;
  }
}

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Failed";
  }
  setTimeout(() => (button.textContent = "Copy"), COPIED);
}

document.addEventListener("click", ({ target }) => {
  if (target.matches("[data-copy]")) copy(target);
});
document.addEventListener("input", ({ target }) => {
  if (target.matches("[data-filter]")) filter(target);
});
document.addEventListener("visibilitychange", follow);
// What has changed meanwhile.
document.addEventListener("focusout", () => setTimeout(show));
document.addEventListener("selectionchange", () => {
  if (getSelection().isCollapsed) show();
});
setInterval(count, 1000);
follow();
