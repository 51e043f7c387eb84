"use strict";
const form = document.querySelector("form");
const result = document.querySelector("#result");
const button = form.querySelector("button");
const key = document.querySelector("#key");
if (key) key.value = sessionStorage.getItem("weft-key") ?? "";  // the other pages of the server ask for it too

function value(field) {
  if (field.type === "checkbox") return field.checked || undefined;
  const text = field.value.trim();
  if (!text) return undefined;
  if (field.type === "number") return Number(text);
  return field.tagName === "TEXTAREA" ? text.split("\n").map(line => line.trim()).filter(Boolean) : text;
}

function fail(reason) {
  const message = document.createElement("p");
  message.className = "problem";
  message.textContent = reason;
  result.replaceChildren(message);
}

async function send() {
  const headers = { "accept": "text/html", "content-type": "application/json" };
  if (key) {
    headers["authorization"] = `Bearer ${key.value.trim()}`;
    sessionStorage.setItem("weft-key", key.value);
  }
  const body = {};
  for (const field of form.querySelectorAll("[name]")) body[field.name] = value(field);
  const response = await fetch(form.dataset.path, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (response.ok) return text;
  let reason = `The server answered ${response.status}.`;
  try { reason = JSON.parse(text).detail; } catch { /* an answer of a proxy */ }
  throw new Error(reason);
}

form.addEventListener("submit", async event => {
  event.preventDefault();
  button.disabled = true;
  const begun = Date.now();
  const tick = () => { result.textContent = `Computing, ${Math.round((Date.now() - begun) / 1000)} s ...`; };
  tick();
  const timer = setInterval(tick, 1000);
  result.setAttribute("aria-busy", "true");
  try {
    const answer = await send();
    clearInterval(timer);
    result.innerHTML = answer;
  } catch (error) {
    clearInterval(timer);
    fail(error instanceof TypeError ? "The server cannot be reached." : error.message);
  }
  result.removeAttribute("aria-busy");
  button.disabled = false;
});
// Enter starts a new line in the box of the inputs, and Ctrl+Enter sends
form.addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
