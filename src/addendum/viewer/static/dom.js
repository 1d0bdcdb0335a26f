// What every page needs: our token, requests to us, and HTML that we made ourselves.

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
export const data = document.body.dataset;

const token = $('meta[name="addendum-token"]')?.content ?? "";

// Our own templates escape everything that is foreign, so what they give may become nodes.
export function nodes(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content;
}

export async function part(url, signal) {
  const answer = await fetch(url, { headers: { "x-part": "1" }, signal });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text.trim() || data.failed);
  return { text, headers: answer.headers };
}

export async function post(url, body = {}) {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", "x-addendum-token": token },
    body: JSON.stringify(body),
  });
  let given = {};
  try {
    given = await answer.clone().json();
  } catch {
    given = answer.ok ? {} : { error: (await answer.text()).trim() };
  }
  if (!answer.ok || given.error) throw new Error(given.error || data.failed);
  return given;
}

let hiding = 0;
export function status(text, lasting = false) {
  const place = $("#status");
  clearTimeout(hiding);
  place.textContent = text;
  place.hidden = !text;
  if (text && !lasting) hiding = setTimeout(() => (place.hidden = true), 3000);
}

// What waits until nothing of its place is held down: a button that is replaced never hears its click.
const held = new Map();
for (const name of ["pointerup", "pointercancel", "keyup"]) {
  document.addEventListener(name, () => setTimeout(() => {
    for (const [place, html] of held) renew(place, html);
  }));
}

// Put new HTML into a place; what was open stays open, what had the focus keeps it.
export function renew(place, html) {
  held.delete(place);
  if ($(":active", place)) {
    held.set(place, html);
    return;
  }
  const open = new Map($$("details[data-keep]", place).map((each) => [each.dataset.keep, each.open]));
  const focused = place.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  place.replaceChildren(nodes(html));
  for (const each of $$("details[data-keep]", place)) each.open = open.get(each.dataset.keep) ?? each.open;
  if (focused) $(focused, place)?.focus({ preventScroll: true });
}

function keyOf(element) {
  for (const name of ["data-switch", "name"]) {
    const value = element.getAttribute(name);
    if (value !== null) return `[${name}="${CSS.escape(value)}"]`;
  }
  const keep = element.closest("details[data-keep]")?.dataset.keep;
  return keep ? `details[data-keep="${CSS.escape(keep)}"] > summary` : null;
}

// An event stream that comes back by itself, also where the browser gave up.
export function follow(url, after, handlers) {
  let last = after;
  let source = null;
  let ended = false;
  const open = () => {
    const address = new URL(url, location.href);
    address.searchParams.set("after", last);
    source = new EventSource(address);
    source.onopen = () => status("");
    source.onerror = () => {
      if (ended) return;
      status(data.offline, true);
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 3000);
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        if (event.lastEventId) last = event.lastEventId;
        handle(JSON.parse(event.data));
      });
    }
  };
  addEventListener("pagehide", () => { ended = true; source?.close(); });
  addEventListener("pageshow", (event) => { if (event.persisted) { ended = false; open(); } });
  open();
}

// Whether a place is scrolled to its end, give or take a line.
export const atEnd = (place) => place.scrollHeight - place.scrollTop - place.clientHeight < 60;
