// A conversation: turns as they come, the answer as it is written, and what a person does in it.

import { $, $$, atEnd, data, follow, nodes, part, post, renew, status } from "./dom.js";
import { choose, copyable, grows, keys, relist, sends, step } from "./page.js";

const base = data.base;
const talk = $("#talk");
const turns = $("#turns");
const live = $("#live");
const form = $("#write");
const field = $("#message");
const problem = $("#problem");
const sendButton = $("#send");
const stopButton = $("#stop");
const placeholder = field.placeholder;
let following = true;
let busy = false;
let queued = false;

grows(field);
sends(field, form);

function toEnd() {
  talk.scrollTop = talk.scrollHeight;
}
talk.addEventListener("scroll", () => (following = atEnd(talk)), { passive: true });
if (location.hash.length > 1) {
  following = false;
  choose(document.getElementById(decodeURIComponent(location.hash.slice(1))));
} else {
  toEnd();
}

function told(error) {
  problem.textContent = error.message;
  problem.hidden = false;
}

async function act(path, body) {
  problem.hidden = true;
  try {
    return await post(`${base}/${path}`, body);
  } catch (error) {
    told(error);
    return null;
  }
}

// -- what comes ---------------------------------------------------------------------------------

follow(`${base}/events?view=chat`, data.after, {
  turn: showTurn,
  live: ({ html }) => {
    renew(live, html);
    copyable(live);
    if (following) toEnd();
  },
  state: showState,
  panel: ({ html }) => renew($("[data-panel]"), html),
  closed: ({ why }) => {
    told({ message: why });
    sendButton.disabled = true;
  },
  reload: () => location.reload(),
});

function showTurn({ turn, label, order, items }) {
  let section = document.getElementById(`t${turn}`);
  if (!section) {
    if (!order.length) return;
    const shown = $$(".turn", turns);
    if (shown.length && turn < Number(shown[0].dataset.turn)) return;
    section = document.createElement("section");
    section.className = "turn";
    section.id = `t${turn}`;
    section.dataset.turn = turn;
    section.setAttribute("aria-label", label);
    const next = shown.find((each) => Number(each.dataset.turn) > turn);
    turns.insertBefore(section, next ?? null);
  }
  const there = new Map($$(":scope > .item", section).map((each) => [each.id, each]));
  let place = null;
  for (const key of order) {
    let item = there.get(key);
    const fresh = items[key];
    if (fresh && (!item || item.dataset.v !== fresh[0])) item = showItem(key, fresh, item);
    there.delete(key);
    if (!item) continue;
    const wanted = place ? place.nextElementSibling : section.firstElementChild;
    if (item !== wanted) section.insertBefore(item, wanted);
    place = item;
  }
  for (const item of there.values()) item.remove();
  if (!section.childElementCount) section.remove();
  if (following) toEnd();
}

function showItem(key, [version, html], old) {
  const item = document.createElement("div");
  item.className = "item";
  item.id = key;
  item.dataset.v = version;
  item.append(nodes(html));
  copyable(item);
  if (old) {
    const open = $$("details", old).map((each) => each.open);
    const held = old.contains(document.activeElement);
    $$("details", item).forEach((each, at) => (each.open = open[at] ?? false));
    old.replaceWith(item);
    if (held) choose(item);
  }
  return item;
}

function showState(state) {
  // The list beside tells when a conversation was used last, and how long it is.
  if (busy && !state.busy && !document.activeElement?.closest?.("[data-list]")) relist();
  busy = state.busy;
  stopButton.hidden = !busy;
  sendButton.hidden = busy;
  sendButton.disabled = state.waits || !state.open;
  field.placeholder = state.waits ? data.waiting : placeholder;
  document.body.classList.toggle("busy", busy);
  for (const button of $$("[data-again], [data-edit]")) button.disabled = busy || state.waits;
  if (busy) return;
  status("");
  if (queued && !state.waits) form.requestSubmit();
  queued = false;
}

// -- what a person does ---------------------------------------------------------------------------

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = field.value;
  if (!text.trim()) return;
  // What is sent while a turn runs goes when it is over.
  queued = busy;
  if (busy) return;
  following = true;
  field.value = "";
  field.dispatchEvent(new Event("input"));
  if (!(await act("send", { text })) && !field.value) field.value = text;
});

stopButton.addEventListener("click", () => {
  queued = false;
  act("stop");
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button");
  if (!button || button.disabled) return;
  if (button.dataset.again) {
    following = true;
    await act("again", { turn: Number(button.dataset.again) });
  } else if (button.dataset.fork) {
    const made = await act("fork", { turn: Number(button.dataset.fork) });
    if (made?.url) location.assign(made.url);
  } else if ("edit" in button.dataset) {
    edit(button.closest(".said"));
  } else if (button.dataset.allCalls) {
    decideAll(button.dataset.allCalls);
  } else if ("switch" in button.dataset) {
    await switchServer(button);
  } else if (button.id === "earlier") {
    await earlier(button);
  }
});

async function switchServer(button) {
  const on = button.getAttribute("aria-checked") !== "true";
  button.setAttribute("aria-busy", "true");
  button.disabled = true;
  if (!(await act("switch", { server: button.dataset.switch, on }))) button.disabled = false;
  button.removeAttribute("aria-busy");
}

async function earlier(button) {
  button.disabled = true;
  const before = talk.scrollHeight - talk.scrollTop;
  const { text, headers } = await part(`${base}/turns?before=${button.dataset.before}`);
  const content = nodes(text);
  copyable(content);
  button.after(content);
  const next = headers.get("x-earlier");
  if (next) {
    button.dataset.before = next;
    button.disabled = false;
  } else {
    button.remove();
  }
  talk.scrollTop = talk.scrollHeight - before;
}

function edit(said) {
  const text = $(".text", said);
  if ($("form", said)) return;
  const turn = Number(said.dataset.turn);
  const editor = document.createElement("form");
  editor.className = "editor";
  const area = document.createElement("textarea");
  area.value = text.textContent;
  area.setAttribute("aria-label", data.editLabel);
  area.rows = Math.min(10, area.value.split("\n").length + 1);
  const row = document.createElement("div");
  row.className = "row";
  const save = Object.assign(document.createElement("button"), { className: "primary", textContent: data.save });
  const cancel = Object.assign(document.createElement("button"), { type: "button", textContent: data.cancel });
  row.append(save, cancel);
  editor.append(area, row);
  text.hidden = true;
  text.after(editor);
  area.focus();
  const close = () => {
    editor.remove();
    text.hidden = false;
    $("[data-edit]", said)?.focus();
  };
  cancel.addEventListener("click", close);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); close(); }
  });
  sends(area, editor);
  editor.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!area.value.trim()) return;
    save.disabled = true;
    following = true;
    if (!(await act("again", { turn, text: area.value }))) save.disabled = false;
    else close();
  });
}

// Calls that wait are decided together, so the last decision sends them all.
const decisions = new Map();
turns.addEventListener("submit", (event) => {
  const asked = event.target.closest(".ask");
  if (!asked) return;
  event.preventDefault();
  const fields = asked.elements;
  const kind = event.submitter?.value ?? "approve";
  const decision = { kind, always: fields.always.checked };
  if (kind === "edit") decision.arguments = fields.arguments.value;
  if (kind === "respond") decision.text = fields.answer.value;
  if (kind === "deny") decision.text = fields.reason.value;
  decide(asked, decision);
});

function waiting() {
  return $$("form.ask").filter((each) => $("button[type=submit]", each));
}

function decide(asked, decision) {
  decisions.set(asked.dataset.call, decision);
  asked.classList.add("done");
  const all = waiting();
  const done = all.filter((each) => decisions.has(each.dataset.call));
  const count = data.decided.replace("##", all.length).replace("#", done.length);
  $(".decided", asked).textContent = all.length > 1 ? count : "";
  if (done.length === all.length) send(all);
}

function decideAll(kind) {
  for (const each of waiting()) decisions.set(each.dataset.call, { kind });
  send(waiting());
}

async function send(all) {
  following = true;
  for (const each of all) for (const button of $$("button", each)) button.disabled = true;
  const given = Object.fromEntries(decisions);
  decisions.clear();
  if (!(await act("decide", { decisions: given }))) {
    for (const each of all) {
      each.classList.remove("done");
      for (const button of $$("button", each)) button.disabled = false;
    }
  }
}

$("#panel").addEventListener("submit", async (event) => {
  const chosen = event.target.closest("[data-route]");
  if (!chosen) return;
  event.preventDefault();
  await act("route", { route: chosen.elements.route.value });
});

// -- keys -------------------------------------------------------------------------------------------

keys.set("j", () => step("#turns .item", 1));
keys.set("k", () => step("#turns .item", -1));
keys.set("]", () => step("#turns .turn", 1));
keys.set("[", () => step("#turns .turn", -1));
keys.set("w", () => field.focus());
keys.set("e", () => { following = true; toEnd(); field.focus(); });
keys.set("d", () => { location.assign(`${base}/trajectory`); });
keys.set("Enter", (event) => {
  const item = event.target.closest?.(".item");
  const fold = item && event.target === item ? $("details", item) : null;
  if (!fold) return false;
  fold.open = !fold.open;
});
