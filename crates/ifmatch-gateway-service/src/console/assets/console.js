// Keeps the live parts of a page current, counts seconds, filters lists and copies tags. Everything else works without it.
"use strict";

// Milliseconds until a page asks again for a stream that was refused.
const AGAIN = 10_000;
// Milliseconds for which a button says that it has copied.
const COPIED = 1_500;

let stream;
// The latest version of the page, which may wait to be shown.
let page;

// What works with scripts only is shown.
document.documentElement.classList.add("has-scripts");

// The gateway sends the page whenever it has changed. A page that is not seen needs no stream.
function follow() {
  stream?.close();
  stream = undefined;
  if (document.hidden || !document.querySelector("[data-live]")) return;
  stream = new EventSource(document.querySelector("[data-stream]")?.dataset.stream ?? location.href);
  stream.addEventListener("page", (event) => {
    stale(false);
    page = new DOMParser().parseFromString(event.data, "text/html");
    show();
  });
  stream.addEventListener("stale", () => stale(true));
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

// What is shown may be out of date.
function stale(isStale) {
  document.getElementById("stale")?.remove();
  if (!isStale) return;
  const notice = Object.assign(document.createElement("p"), { id: "stale", className: "warning", role: "status" });
  notice.textContent = "This page can't be updated, so it shows an earlier state. Reload it to see why.";
  document.getElementById("main").prepend(notice);
}

// Nothing moves under the keyboard or the mouse of a reader. A part waits until the focus and the selection are elsewhere.
function isInUse(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) || !selection.isCollapsed && selection.containsNode(part, true);
}

// A list that grows at the top doesn't move while it is read: under the pointer, with an open row, or scrolled. Nor does what is
// above it grow. A button says how many entries are new.
function isRead(part) {
  return part.matches(":hover") || part.querySelector("tr.open") || part.getBoundingClientRect().top < 0;
}

function offer(shown, isWaiting) {
  const button = document.querySelector(`[data-fresh="${shown.id}"]`);
  const count = Number(page?.getElementById(shown.id)?.dataset.total) - Number(shown.dataset.total);
  button.hidden = !isWaiting || count === 0;
  button.textContent = count > 0 ? `${count} new` : "Show new";
}

function show(asked) {
  const held = document.querySelector("[data-held]");
  const isWaiting = held && page?.getElementById(held.id) && asked !== held.id && isRead(held);
  if (held) offer(held, isWaiting);
  if (isWaiting) return;
  for (const part of page?.querySelectorAll("[data-live]") ?? []) {
    const shown = document.getElementById(part.id);
    if (!shown || isInUse(shown)) continue;
    const open = [...shown.querySelectorAll("details")].map((details) => details.open);
    const rows = new Set([...shown.querySelectorAll("tr.open")].map((row) => row.dataset.key));
    const next = document.adoptNode(part);
    next.querySelectorAll("details").forEach((details, nr) => (details.open = open[nr] ?? false));
    next.querySelectorAll("tr[data-key]").forEach((row) => unfold(row, rows.has(row.dataset.key)));
    if (next.dataset.tag) {
      next.dataset.began = shown.dataset.began ?? shown.dataset.tag;
      next.hidden = next.dataset.tag === next.dataset.began;
    }
    shown.replaceWith(next);
  }
  document.querySelectorAll("[data-filter]").forEach(filter);
}

// On a narrow screen, a row is one line until it is unfolded.
function unfold(row, isOpen) {
  row.classList.toggle("open", isOpen);
  row.querySelector(".more")?.setAttribute("aria-expanded", isOpen);
}

// Hides the rows of a list that do not have the text in their first column.
function filter(input) {
  if (input.value === input.defaultValue && !input.dataset.filtered) return;
  input.dataset.filtered = "true";
  const wanted = input.value.trim().toLowerCase();
  if (wanted) document.querySelectorAll(`#${input.dataset.filter} details`).forEach((details) => (details.open = true));
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
  if (target.matches("[data-fresh]")) show(target.dataset.fresh);
  const row = target.closest(".fold tr[data-key]");
  if (row && (target.matches(".more") || !target.closest("a, button"))) unfold(row, !row.classList.contains("open"));
});
document.addEventListener("input", ({ target }) => {
  if (target.matches("[data-filter]")) filter(target);
});
document.addEventListener("visibilitychange", follow);
// What has changed meanwhile.
document.addEventListener("focusout", () => setTimeout(show, 0));
document.addEventListener("selectionchange", () => {
  if (getSelection().isCollapsed) show();
});
document.addEventListener("mouseout", ({ target }) => {
  if (target.closest("[data-held]")) setTimeout(show, 0);
});
document.addEventListener("scrollend", () => show());
setInterval(count, 1000);
follow();
