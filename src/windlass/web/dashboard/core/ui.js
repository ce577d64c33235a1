// Dialogs, messages, copying, and small parts that several pages have.

import { h, patch } from "./dom.js";
import { count, moment, relative } from "./format.js";
import { icon } from "./marks.js";

const toasts = document.getElementById("toasts");

/** Say what came of an action; readers hear it. */
export function say(text, seconds = 6) {
  const node = document.createElement("div");
  node.className = "toast";
  node.textContent = text;
  toasts.append(node);
  setTimeout(() => node.remove(), seconds * 1000);
}

export async function copy(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea"); // there is no clipboard on plain http
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`${what}.`);
}

export function copyButton(text, title = "Copy") {
  return h("button.button.plain.slim", { type: "button", title, "aria-label": title, onclick: () => copy(text) }, icon("copy"));
}

/** Open a dialog: `view(close)` describes its form; the answer is what `close(value)` is given, or null. */
export function dialog(view, { wide = false, className = "" } = {}) {
  return new Promise((resolve) => {
    const node = document.createElement("dialog");
    node.className = [wide ? "wide" : "", className].join(" ").trim();
    const origin = document.activeElement;
    let answer = null;
    const close = (value = null) => {
      answer = value;
      node.close();
    };
    node.addEventListener("close", () => {
      node.remove();
      if (origin?.isConnected) origin.focus();
      resolve(answer);
    });
    const draw = () => patch(node, view(close, draw));
    document.body.append(node);
    draw();
    node.showModal();
    node.querySelector("[autofocus]")?.focus();
  });
}

/** Ask before an action. Above 100 jobs the number has to be typed. */
export function confirm({ title, text = [], button, number = 0, danger = false, fields = [] }) {
  const typed = number > 100;
  let value = "";
  const values = Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""]));
  return dialog((close, draw) =>
    h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); if (!typed || value === String(number)) close({ ...values, ok: true }); } },
      h("h2", title),
      text.map((each) => h("p.second", each)),
      fields.map((field) => h("label.field", field.label,
        h("input", { type: field.type ?? "text", maxlength: field.max ?? 1000, value: values[field.name], autofocus: true, oninput: (event) => { values[field.name] = event.target.value; } }))),
      typed && h("label.field", h("span", "Type ", h("strong", String(number)), " to go on"),
        h("input", { type: "text", inputmode: "numeric", autofocus: true, "aria-label": `Type ${number} to go on`, oninput: (event) => { value = event.target.value.replace(/[,.\s]/g, ""); draw(); } })),
      h("div.buttons",
        h("button.button", { type: "button", onclick: () => close() }, "Back"),
        h(`button.button.${danger ? "danger" : "primary"}`, { type: "submit", disabled: typed && value !== String(number), autofocus: !typed && !fields.length }, button))));
}

/** The properties of a button that needs a role: for others it is disabled, and says why. */
export function only(allows, role) {
  return allows(role) ? {} : { disabled: true, title: `You may look, not change: this needs ${role === "admin" ? "an admin" : "an operator"}'s token.` };
}

/** A time: relative, with the absolute in its title and under it. */
export function time(text, { under = true } = {}) {
  if (!text) return "—";
  return h("time", { datetime: text, title: text }, relative(text), under && h("span.two", moment(text)));
}

export function empty(shape, title, lines = [], buttons = []) {
  return h("div.empty", icon(shape), h("h2", title), lines.map((line) => h("p", line)), h("div.row.wrap", buttons));
}

export function skeleton(rows = 6) {
  return h("div", { "aria-label": "Loading", role: "status" }, Array.from({ length: rows }, (_, n) => h("span.skeleton", { key: n })));
}

export function panel(title, more, body, { side = null, key } = {}) {
  return h("section.panel", { key }, title && h("header", h("h2", title), more && h("span.quiet.small", more), side && h("span.push.row", side)), body);
}

/** What a request that failed is on the page: what happened, and a way out. */
export function failure(problem, retry) {
  if (problem.status === 403) return empty("hold", "Not with this token", [problem.message]);
  if (problem.status === 404) return empty("search", "Not here", [problem.message]);
  const slow = problem.kind === "ReadTimeout";
  return empty(slow ? "clock" : "alert", slow ? "This took too long and was stopped" : "The server refused", [problem.message], [h("button.button", { type: "button", onclick: retry }, "Try again")]);
}

const MOST = 16000; // characters of JSON that a page shows
const texts = new WeakMap(); // of large values, which are drawn once per second

/** A value as JSON text. */
export function textOf(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "";
  if (!texts.has(value)) texts.set(value, JSON.stringify(value, null, 2));
  return texts.get(value);
}

/** What stands beside a value: copy it, and download it where the page does not show it whole. */
export function valueButtons(value, name) {
  const text = textOf(value);
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = `${name}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return [text.length > MOST && h("button.button.plain.slim", { type: "button", onclick: save }, "Download"), copyButton(text, `Copy the ${name}`)];
}

/** JSON as text with its secrets marked; large values are cut, and shown when asked for. */
export function json(value, { most = MOST } = {}) {
  const text = textOf(value);
  const shown = text.slice(0, most);
  const parts = [];
  const token = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/g;
  let at = 0;
  for (const found of shown.matchAll(token)) {
    parts.push(shown.slice(at, found.index));
    const [all, string, colon] = found;
    if (string === '"[redacted]"') parts.push(h("span.hidden-value", { title: "hidden; an admin can reveal it" }, "redacted"));
    else parts.push(h("span", { class: colon ? "k" : string ? "s" : "n" }, string ?? all), colon ?? "");
    at = found.index + all.length;
  }
  parts.push(shown.slice(at));
  return h("pre.json", parts, text.length > most && h("span.quiet", `\n… ${count(text.length - most)} more characters`));
}
