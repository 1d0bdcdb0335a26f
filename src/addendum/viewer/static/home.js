// The start: a first message makes a conversation.

import { $, post } from "./dom.js";
import { grows, keys, sends } from "./page.js";

const form = $("#begin");
const field = $("#message");
const problem = $("#problem");
grows(field);
sends(field, form);
keys.set("w", () => field.focus());

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
