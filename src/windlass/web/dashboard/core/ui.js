// Dialogs, messages, copying, and small parts that several pages have.

import { h, icon, patch } from "./dom.js";
import { count } from "./format.js";

/** Say what came of an action; readers hear it. */
export function say(text, seconds = 6) {
	const node = document.createElement("div");
	node.className = "toast";
	node.textContent = text;
	document.getElementById("toasts").append(node);
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

export const copyButton = (text, title) => h("button.plain.slim", { title, "aria-label": title, onclick: () => copy(text) }, icon("copy"));

/** Open a dialog: `view(close, draw)` describes its form; the answer is what `close(value)` is given, or null. */
export function dialog(view, className = "") {
	return new Promise((resolve) => {
		const node = document.createElement("dialog");
		node.className = className;
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

/** A labelled text field that keeps what is typed in `values`. */
export function textField(values, name, label, more = {}) {
	return h("label.field", { key: name }, label, h("input", { type: "text", maxlength: 1000, value: values[name] ?? "", oninput: (event) => { values[name] = event.target.value; }, ...more }));
}

/** The buttons of a form: back, what is between, and the one that does it. */
export function formButtons(close, label, { danger, between, ...more } = {}) {
	return h("div.buttons", h("button", () => close(), "Back"), between, h(`button.${danger ? "danger" : "primary"}`, { type: "submit", ...more }, label));
}

/** A labelled choice of values. */
export function choiceField(values, name, label, options, changed = () => {}) {
	const chosen = (event) => { values[name] = event.target.value; changed(); };
	return h("label.field", { key: name }, label, h("select", { onchange: chosen }, options.map((each) => h("option", { value: each, selected: values[name] === each }, each))));
}

/** Ask before an action. Above 100 jobs the number has to be typed. Fields: [name, label, value, its choices]. */
export function confirm({ title, text = [], button, number = 0, danger = false, fields = [] }) {
	const wanted = number > 100 ? String(number) : null;
	const typed = {};
	const values = Object.fromEntries(fields.map(([name, , value]) => [name, value ?? ""]));
	const ready = () => wanted === null || (typed.number ?? "").replace(/[,.\s]/g, "") === wanted;
	return dialog((close, draw) =>
		h("form", { onsubmit: (event) => { event.preventDefault(); if (ready()) close(values); } },
			h("h2", title),
			text.map((each) => h("p.second", each)),
			fields.map(([name, label, , options]) => (options ? choiceField(values, name, label, options) : textField(values, name, label, { autofocus: true }))),
			wanted && textField(typed, "number", h("span", "Type ", h("strong", wanted), " to go on"), { inputmode: "numeric", autofocus: true, "aria-label": `Type ${wanted} to go on`, oninput: (event) => { typed.number = event.target.value; draw(); } }),
			formButtons(close, button, { danger, disabled: !ready(), autofocus: !wanted && !fields.length })));
}

/** Ask, do it, say what came of it: `send(values)` may return the words. The answer is whether it was done. */
export async function ask(question, send, said) {
	const values = await confirm(question);
	if (values) say((await send(values)) ?? said);
	return Boolean(values);
}

/** The field of a reason, and what is sent of it. */
export const REASON = ["reason", "Reason (shown to all)"];
export const reasonOf = ({ reason }) => (reason.trim() ? { reason: reason.trim() } : {});

/** The properties of a button that needs a role: for others it is disabled, and says why. */
export function only(allows, role, onclick) {
	return allows(role) ? { onclick } : { disabled: true, title: `You may look, not change: this needs ${role === "admin" ? "an admin" : "an operator"}'s token.` };
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

/**
 * A table: [key, cell, …] per row, or a row that is made already. A head that begins with ">" is right-aligned, one with "~"
 * is for wide windows only; on a phone, cells of a table of cards have their heads as labels.
 */
export function table(heads, rows, className = "") {
	const kinds = heads.map((text) => [text.includes(">") ? "right" : "", text.includes("~") ? "wide-only" : ""].join(" ").trim());
	const names = heads.map((text) => text.replace(/^[>~]+/, ""));
	const line = ([key, ...cells]) => h("tr.hoverable", { key }, cells.map((cell, n) => h("td", { class: kinds[n], "data-name": kinds[n] ? names[n].toLowerCase() || null : null }, cell)));
	return h("div.scroll", h("table", { class: className }, names.some(Boolean) && h("thead", h("tr", names.map((name, n) => h("th", { class: kinds[n] }, name)))), h("tbody", rows.map((row) => (Array.isArray(row) ? line(row) : row)))));
}

/** Buttons of which one is pressed: [[value, label]…]. */
export function segment(label, options, chosen, choose) {
	return h("span.segment", { role: "group", "aria-label": label }, options.map(([value, name]) => h("button", { key: value, "aria-pressed": String(value === chosen), onclick: () => choose(value) }, name)));
}

export function progressBar(done, whole, className = "") {
	return h("span.bar.grow", { class: className, role: "progressbar", "aria-label": "Progress", "aria-valuenow": done, "aria-valuemax": whole }, h("span", { style: { width: `${Math.min(100, (100 * done) / (whole || 1))}%` } }));
}

/** What a request that failed is on the page: what happened, and a way out. */
export function failure(problem, retry) {
	if (problem.status === 403) return empty("hold", "Not with this token", [problem.message]);
	if (problem.status === 404) return empty("search", "Not here", [problem.message]);
	const slow = problem.kind === "ReadTimeout";
	return empty(slow ? "clock" : "alert", slow ? "This took too long and was stopped" : "The server refused", [problem.message], [h("button", retry, "Try again")]);
}

export const MOST = 16000; // characters of JSON that a page shows
const texts = new WeakMap(); // of large values, which are drawn once per second

/** A value as JSON text. */
export function textOf(value) {
	if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "";
	if (!texts.has(value)) texts.set(value, JSON.stringify(value, null, 2));
	return texts.get(value);
}

export function download(text, name) {
	const link = document.createElement("a");
	link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
	link.download = `${name}.json`;
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** JSON as text with its secrets marked; large values are cut. */
export function json(value) {
	const text = textOf(value);
	const parts = text.slice(0, MOST).split('"[redacted]"').flatMap((part, n) => [n > 0 && h("span.hidden-value", { title: "hidden; an admin can reveal it" }, "redacted"), part]);
	return h("pre.json", parts, text.length > MOST && h("span.quiet", `\n… ${count(text.length - MOST)} more characters`));
}
