// The ledger: rows as they come, older ones when they are needed, and the inspector beside them.

import { $, $$, atEnd, data, follow, nodes, part, status } from "./dom.js";
import { choose, copyable, keys, step } from "./page.js";

const base = data.base;
const ledger = $("#ledger");
const rows = $("#rows");
const inspector = $("#inspector");
const button = $("#follow");
const MOST = 700; // rows that the page holds; what is out of sight is loaded again when needed
let following = false;
let live = false;
let followed = false;

// -- following ---------------------------------------------------------------------------------------

function toEnd() {
  ledger.scrollTop = ledger.scrollHeight;
}

function showFollowing() {
  if (!button) return;
  button.hidden = following && live;
  if (following) followed = true;
  if (followed) button.textContent = data.paused;
}

if (rows) {
  const at = new URLSearchParams(location.search).get("at");
  const pointed = document.getElementById(location.hash.slice(1) || `e${at}`);
  live = !$("#later");
  if (pointed) {
    choose(pointed);
    pointed.scrollIntoView({ block: "center" });
    pointed.classList.add("pointed");
    if (pointed.matches("li")) pointed.setAttribute("aria-current", "true");
  } else if (live) {
    following = true;
    toEnd();
  }
  ledger.addEventListener("scroll", () => {
    following = live && atEnd(ledger);
    showFollowing();
  }, { passive: true });
  button?.addEventListener("click", goToEnd);
  showFollowing();
  if (live) listen();
  watchEdges();
}

function goToEnd() {
  if (!live) return location.assign(`${base}/trajectory`);
  following = true;
  toEnd();
  showFollowing();
}

function listen() {
  follow(`${base}/events?view=ledger`, data.after, {
    rows: ({ html }) => {
      add(nodes(html));
      if (following) {
        trim(true);
        toEnd();
      }
      showFollowing();
    },
    reload: () => location.reload(),
  });
}

function add(content) {
  for (const row of [...content.children]) {
    const there = document.getElementById(row.id);
    if (there) there.replaceWith(row);
    else rows.append(row);
  }
}

// -- more rows -----------------------------------------------------------------------------------------

function watchEdges() {
  const seen = new IntersectionObserver(
    (entries) => entries.filter((each) => each.isIntersecting).forEach((each) => more(each.target)),
    { root: ledger, rootMargin: "400px" },
  );
  for (const edge of [$("#earlier"), $("#later")]) if (edge) watch(edge, seen);
}

function watch(edge, seen) {
  edge.addEventListener("click", (event) => { event.preventDefault(); more(edge); });
  seen.observe(edge);
}

let loading = false;
async function more(edge) {
  if (loading || !edge.isConnected) return;
  loading = true;
  try {
    const back = edge.id === "earlier";
    const query = back ? `before=${edge.dataset.before}` : `after=${edge.dataset.after}`;
    const { text, headers } = await part(`${base}/rows?${query}`);
    const height = ledger.scrollHeight;
    if (back) {
      rows.prepend(nodes(text));
      ledger.scrollTop += ledger.scrollHeight - height;
      const first = Number(headers.get("x-first"));
      edge.dataset.before = first;
      if (first <= 0) edge.remove();
    } else {
      add(nodes(text));
      const end = Number(headers.get("x-end"));
      edge.dataset.after = end - 1;
      if (end >= Number(headers.get("x-total"))) {
        edge.remove();
        data.after = end - 1;
        live = true;
        listen();
      }
    }
  } catch (error) {
    status(error.message);
  } finally {
    loading = false;
  }
  // What is still in sight is asked for again at the next turn of the wheel; a short page asks now.
  if (edge.isConnected && edge.getBoundingClientRect().top < innerHeight + 400 && edge.getBoundingClientRect().bottom > -400) {
    setTimeout(() => more(edge), 60);
  }
}

function trim() {
  const extra = rows.childElementCount - MOST;
  for (let at = 0; at < extra; at += 1) rows.firstElementChild.remove();
  const first = rows.firstElementChild;
  const edge = $("#earlier");
  if (extra > 0 && first && edge) edge.dataset.before = first.dataset.seq;
}

// -- the inspector --------------------------------------------------------------------------------------

async function inspect(url, row) {
  if (row) mark(row);
  inspector.setAttribute("aria-busy", "true");
  try {
    const { text } = await part(url);
    const place = $("[data-inspector]", inspector);
    place.replaceChildren(nodes(text));
    place.scrollTop = 0;
    copyable(place);
    inspector.classList.add("open");
  } catch (error) {
    status(error.message);
  } finally {
    inspector.removeAttribute("aria-busy");
  }
}

function mark(row) {
  for (const each of $$("[aria-current]", rows ?? document.body)) if (each.matches("li")) each.removeAttribute("aria-current");
  row.setAttribute("aria-current", "true");
  const address = new URL(`${base}/trajectory`, location.href);
  if (row.dataset.number) address.searchParams.set("request", row.dataset.number);
  address.searchParams.set("at", row.dataset.seq);
  address.hash = row.id;
  history.replaceState(null, "", address);
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const target = event.target;
  if (target.closest?.("[data-close]")) return inspector.classList.remove("open");
  const other = target.closest?.("[data-request-link]");
  if (other && inspector) {
    event.preventDefault();
    const row = rows && $(`[data-number="${other.dataset.requestLink}"]`, rows);
    return inspect(other.getAttribute("href"), row);
  }
  if (!inspector || target.closest?.("summary, details, button")) return;
  const row = target.closest?.(".rows > li");
  const link = row && $("[data-open]", row);
  if (!link || (target.closest("a") && !target.closest("[data-open]"))) return;
  event.preventDefault();
  choose(row);
  inspect(link.dataset.open, row);
});

// -- keys -------------------------------------------------------------------------------------------------

const stops = ".rows > li, .segments > li, .pairs > li, .strip-row";
keys.set("j", () => step(rows || $(".rows") ? ".rows > li" : stops, 1));
keys.set("k", () => step(rows || $(".rows") ? ".rows > li" : stops, -1));
const opening = () => $$(".rows > li").filter((each) => $(".turn-rule", each));
function turn(by) {
  const all = opening();
  const here = document.activeElement?.closest?.(".rows > li") ?? $(".rows > li[aria-current]");
  const top = here ? Number(here.dataset.seq) : by > 0 ? -1 : Infinity;
  const next = by > 0
    ? all.find((each) => Number(each.dataset.seq) > top)
    : all.filter((each) => Number(each.dataset.seq) < top).at(-1);
  if (next) choose(next);
  else if (by < 0 && $("#earlier")) more($("#earlier"));
}
keys.set("]", () => turn(1));
keys.set("[", () => turn(-1));
keys.set("e", goToEnd);
keys.set("d", () => {
  const shown = $("[data-diff]");
  if (shown) return location.assign(shown.href);
  const row = document.activeElement?.closest?.("li[data-number]");
  if (row && Number(row.dataset.number) > 1) location.assign(`${base}/diff/${row.dataset.number - 1}/${row.dataset.number}`);
});
keys.set("Enter", (event) => {
  const row = event.target.closest?.("li");
  if (!row || event.target !== row) return false;
  const link = $("[data-open]", row);
  if (link && inspector) inspect(link.dataset.open, row);
  else { const fold = $("details", row); if (fold) fold.open = !fold.open; }
});
const search = $("[data-search] input");
if (search) keys.set("/", () => search.focus());

// A difference begins where it differs; a segment that was linked to is open.
const first = $("[data-first]");
if (first && !location.hash) first.scrollIntoView({ block: "start" });
const linked = location.hash.startsWith("#g-") ? document.getElementById(location.hash.slice(1)) : null;
if (linked) {
  $("details", linked).open = true;
  choose(linked);
}
