// The start: a first message makes a conversation.

import { $, post } from "./dom.js";
import { grows, keys, sends } from "./page.js";

const form = $("#begin");
const field = $("#message");
const problem = $("#problem");
grows(field);
sends(field, form);
keys.set("w", () => field.focus());

// Conversations by a column; once more turns the order round.
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-sort]");
  if (!button) return;
  const head = button.closest("th");
  const at = [...head.parentElement.children].indexOf(head);
  const up = head.getAttribute("aria-sort") === "descending";
  for (const each of head.parentElement.children) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = $("tbody", head.closest("table"));
  const by = (row) => row.children[at].dataset.by;
  const order = (a, b) => (at ? Number(by(a)) - Number(by(b)) : by(b).localeCompare(by(a)));
  body.append(...[...body.children].sort((a, b) => (up ? order(a, b) : order(b, a))));
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!field.value.trim()) return field.focus();
  const button = $("button[type=submit]", form);
  button.disabled = true;
  problem.hidden = true;
  try {
    const { url } = await post("/new", { text: field.value, route: form.elements.route.value });
    location.assign(url);
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    button.disabled = false;
  }
});
