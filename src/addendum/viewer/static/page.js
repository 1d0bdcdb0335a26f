// What all pages share: the list of conversations, keys, texts that are shown in full, copying.

import { $, $$, data, nodes, part, status } from "./dom.js";

export const keys = new Map();

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return escape(event);
  const target = event.target;
  if (target.closest?.("input, textarea, select, dialog[open], [contenteditable]")) return;
  const handle = keys.get(event.key);
  if (handle && handle(event) !== false) event.preventDefault();
});

function escape(event) {
  const field = event.target.closest?.("input, textarea");
  if (field) field.blur();
  shut();
}

const dialog = $("#keys");
const help = () => (dialog.open ? dialog.close() : dialog.showModal());
keys.set("?", help);
$("[data-keys]").addEventListener("click", help);
dialog.addEventListener("keydown", (event) => {
  if (event.key === "?") { event.preventDefault(); dialog.close(); }
});

// The list and the panel slide in where the page is narrow.
export function shut(except) {
  for (const button of $$("[data-opens]")) {
    const place = document.getElementById(button.dataset.opens);
    if (!place || place === except) continue;
    place.classList.remove("open");
    button.setAttribute("aria-expanded", "false");
  }
  $("#inspector")?.classList.remove("open");
}

for (const button of $$("[data-opens]")) {
  button.addEventListener("click", () => {
    const place = document.getElementById(button.dataset.opens);
    shut(place);
    const open = place.classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
    if (open) $("a, button, input", place)?.focus({ preventScroll: true });
  });
}
$("main").addEventListener("pointerdown", () => {
  if (matchMedia("(max-width: 60rem)").matches) shut();
});

// Conversations by a word.
const filter = $("[data-filter]");
const list = $("[data-list]");
let asked = null;
export async function relist() {
  if (!list) return;
  asked?.abort();
  asked = new AbortController();
  const query = new URLSearchParams({ q: filter.value, current: list.dataset.current });
  try {
    list.replaceChildren(nodes((await part(`/sessions?${query}`, asked.signal)).text));
  } catch (error) {
    if (error.name !== "AbortError") status(error.message);
  }
}
filter?.addEventListener("input", relist);
if (filter) keys.set("/", () => filter.focus());
const current = $('[aria-current="page"]', list ?? document.body);
if (list && current) list.scrollTop = Math.max(0, current.offsetTop - 120);

// A language that was chosen by its link is kept; the address need not say it again.
const address = new URL(location.href);
if (address.searchParams.has("lang")) {
  address.searchParams.delete("lang");
  history.replaceState(history.state, "", address);
}

// Texts whose beginning is shown, segments that were told in one line, and copying.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button");
  if (!button) return;
  if (button.dataset.all) await whole(button);
  else if (button.dataset.run) await run(button);
  else if ("copyNext" in button.dataset) await copy($("pre", button.closest("section, div")));
  else if (button.classList.contains("copy")) await copy($("code", button.parentElement));
});

async function whole(button) {
  button.disabled = true;
  try {
    const { text } = await part(button.dataset.all);
    const pre = $$("pre", button.closest(".folded, section, details")).at(-1);
    pre.replaceChildren(nodes(text));
    button.remove();
    pre.focus();
  } catch (error) {
    button.disabled = false;
    status(error.message);
  }
}

async function run(button) {
  button.disabled = true;
  try {
    const { text } = await part(button.dataset.run);
    button.closest("li").replaceWith(nodes(text));
  } catch (error) {
    button.disabled = false;
    status(error.message);
  }
}

async function copy(place) {
  try {
    await navigator.clipboard.writeText(place.textContent);
    status(data.copied);
  } catch {
    getSelection().selectAllChildren(place);
  }
}

export function copyable(root) {
  for (const pre of $$(".prose pre", root)) {
    pre.tabIndex = 0;
    if (pre.parentElement.classList.contains("code")) continue;
    const frame = document.createElement("div");
    frame.className = "code";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy quiet small";
    button.textContent = data.copy;
    pre.replaceWith(frame);
    frame.append(pre, button);
  }
}
copyable(document);

// Step through elements by keys: the one that is chosen has the focus.
export function step(selector, by) {
  const all = $$(selector);
  if (!all.length) return;
  const active = document.activeElement?.closest?.(selector);
  let at = active ? all.indexOf(active) + by : by > 0 ? 0 : all.length - 1;
  if (!active) {
    // Nothing is chosen yet: begin with what is in sight, at the end where the way leads.
    const inSight = (each) => {
      const { top, bottom } = each.getBoundingClientRect();
      return bottom > 100 && top < innerHeight;
    };
    const seen = by > 0 ? all.findIndex(inSight) : all.findLastIndex(inSight);
    if (seen >= 0) at = seen;
  }
  choose(all[Math.max(0, Math.min(all.length - 1, at))]);
}

export function choose(element) {
  if (!element) return;
  if (!element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block: "nearest" });
}

export function grows(field) {
  if (CSS.supports("field-sizing", "content")) return;
  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight, 240)}px`;
  };
  field.addEventListener("input", fit);
}

// Enter sends; while an input method is composing it chooses a word instead.
export function sends(field, form) {
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}
