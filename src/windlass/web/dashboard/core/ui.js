// Dialogs, messages, copying, tables, and small parts that several pages have.

import { allows, bdi, h, icon, patch } from "./dom.js";
import { count, errorName, many } from "./format.js";

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

export const iconButton = (name, onclick, shown) =>
	h("button.plain.slim", { title: name, label: name, onclick }, shown);
export const copyButton = (text, name) => iconButton(name, () => copy(text), icon("copy"));
export const commandButton = (text, label, props) =>
	h("button", { onclick: () => copy(text, "Command copied"), ...props }, icon("copy"), label);

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

export const form = (submit, ...kids) =>
	h("form", { onsubmit: (event) => { event.preventDefault(); submit(event); } }, kids);

export const tell = (body, label = "Close", className = "wide") =>
	dialog((close) => form(() => close(), body(close), h("div.buttons", submitButton(label))), className);

const submitButton = (label, props) => h("button.primary", { type: "submit", autofocus: true, ...props }, label);

export const kept = (values, name, changed = () => {}) => (event) => {
	values[name] = event.target.value;
	changed();
};

export function textField(values, name, label, { changed, ...more } = {}) {
	const props = { type: "text", maxlength: 1000, value: values[name] ?? "", oninput: kept(values, name, changed), ...more };
	return h("label.field", { key: name }, label, h("input", props));
}

export const select = (chosen, onchange, options) =>
	h("select", { onchange }, options.map((each) => h("option", { value: each, selected: each === chosen }, each)));

export function formButtons(close, label, { danger, between, ...more } = {}) {
	return h("div.buttons", h("button", () => close(), "Back"), between,
		h(`button.${danger ? "danger" : "primary"}`, { type: "submit", ...more }, label));
}

/** Ask before an action. Above 100 jobs the number has to be typed. Fields: [name, label, value, its choices]. */
export function confirm({ title, text = [], button, number = 0, danger = false, fields = [] }) {
	const wanted = number > 100 ? String(number) : null;
	const typed = {};
	const values = Object.fromEntries(fields.map(([name, , value]) => [name, value ?? ""]));
	const ready = () => wanted === null || (typed.number ?? "").replace(/[,.\s]/g, "") === wanted;
	const field = ([name, label, , choices]) => (choices
		? h("label.field", { key: name }, label, select(values[name], kept(values, name), choices))
		: textField(values, name, label, { autofocus: true }));
	const typedNumber = (draw) => textField(typed, "number", h("span", "Type ", h("strong", wanted), " to go on"),
		{ inputmode: "numeric", autofocus: true, label: `Type ${wanted} to go on`, changed: draw });
	return dialog((close, draw) => form(() => ready() && close(values),
		h("h2", title),
		text.map((each) => h("p.second", each)),
		fields.map(field),
		wanted && typedNumber(draw),
		formButtons(close, button, { danger, disabled: !ready(), autofocus: !wanted && !fields.length })));
}

/** Ask, do it, say what came of it: `send(values)` may return the words. The answer is whether it was done. */
export async function ask(question, send, said) {
	const values = await confirm(question);
	if (!values) return false;
	const told = await send(values);
	say(said ?? told);
	return true;
}

export const REASON = ["reason", "Reason (shown to all)"];
export const reasonOf = ({ reason }) => (reason.trim() ? { reason: reason.trim() } : {});
export const byWhom = (actor, reason) => `${actor ?? ""}${reason ? `: “${reason}”` : ""}`;

/** The properties of a button that needs a role: for others it is disabled, and says why. */
export function only(role, onclick) {
	if (allows(role)) return { onclick };
	return { disabled: true, title: `You may look, not change: this needs an ${role}'s token.` };
}

export const operate = (label, does, role = "operator") => h("button.slim", only(role, does), label);

export function empty(shape, title, lines = [], buttons = []) {
	return h("div.empty", icon(shape), h("h2", title), lines.map((line) => h("p", line)), h("div.row.wrap", buttons));
}

export function skeleton(rows = 6) {
	return h("div", { label: "Loading", role: "status" }, Array.from({ length: rows }, (_, n) => h("span.skeleton", { key: n })));
}

export const notice = (key, mark, said, more, button) =>
	h("div.notice", { key }, mark, h("strong", said), more && h("span.second", more), button && h("span.push", button));

export function panel(title, more, body, { side, key, className } = {}) {
	return h("section.panel", { key, class: className },
		title && h("header", h("h2", title), more && h("span.quiet.small", more), side && h("span.push.row", side)), body);
}

export const facts = (known) => h("dl.facts.body", Object.entries(known).filter(([, value]) => value)
	.map(([name, value]) => [h("dt", { key: name }, name), h("dd", { key: `${name}=` }, value)]));

/**
 * A table: [key, cell, …] per row, or a row that is made already. A head that begins with ">" is right-aligned, one with "~"
 * is for wide windows only; on a phone, cells of a table of cards have their heads as labels.
 */
export function table(heads, rows, className = "") {
	const columns = heads.map((text) => ({
		name: text.replace(/^[>~]+/, ""),
		class: [text.includes(">") && "right", text.includes("~") && "wide-only"].filter(Boolean).join(" "),
	}));
	const cell = (shown, n) => {
		const { name, class: kind } = columns[n];
		return h("td", { class: kind, "data-name": kind && name ? name.toLowerCase() : null }, shown);
	};
	const line = ([key, ...cells]) => h("tr.hoverable", { key }, cells.map(cell));
	const head = columns.some(({ name }) => name) &&
		h("thead", h("tr", columns.map(({ name, class: kind }) => h("th", { class: kind }, name))));
	return h("div.scroll", h("table", { class: className }, head,
		h("tbody", rows.map((row) => (Array.isArray(row) ? line(row) : row)))));
}

export function segment(label, options, chosen, choose) {
	return h("span.segment", { role: "group", label: label }, options.map(([value, name]) =>
		h("button", { key: value, "aria-pressed": String(value === chosen), onclick: () => choose(value) }, name)));
}

export function progressBar(done, whole) {
	return h("span.bar.grow", { role: "progressbar", label: "Progress", "aria-valuenow": done, "aria-valuemax": whole },
		h("span", { style: { width: `${Math.min(100, (100 * done) / (whole || 1))}%` } }));
}

export function failure({ status, kind, message }, retry) {
	if (status === 403) return empty("hold", "Not with this token", [message]);
	if (status === 404) return empty("search", "Not here", [message]);
	const slow = kind === "ReadTimeout";
	return empty(slow ? "clock" : "alert", slow ? "This took too long and was stopped" : "The server refused", [message],
		[h("button", retry, "Try again")]);
}

/** The options of a field and its list, as assistive programs know them; `chosen` is the number of an option. */
export function listbox(id, label, options, chosen, take, view) {
	return h("ul", { id, role: "listbox", label: label }, options.map((each, n) => [
		each.group && each.group !== options[n - 1]?.group && h("li.group", { key: each.group, role: "presentation" }, each.group),
		h("li", { key: `${each.group} ${each.text}`, id: `${id}-${n}`, role: "option", "aria-selected": String(n === chosen),
			onmousedown: (event) => { event.preventDefault(); take(each); } }, view(each)),
	]));
}

export const comboProps = (id, label, expanded, chosen) => ({
	type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", label: label, "aria-controls": id,
	"aria-expanded": String(expanded), "aria-activedescendant": chosen >= 0 ? `${id}-${chosen}` : null,
});

export const MOST = 16000; // characters of JSON that a page shows
const texts = new WeakMap(); // of large values, which are drawn once per second

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
	const hidden = () => h("span.hidden-value", { title: "hidden; an admin can reveal it" }, "redacted");
	const parts = text.slice(0, MOST).split('"[redacted]"').flatMap((part, n) => [n > 0 && hidden(), part]);
	return h("pre.json", parts, text.length > MOST && h("span.quiet", `\n… ${count(text.length - MOST)} more characters`));
}

/** A traceback with own lines bold, frames of libraries folded until they are asked for, and the message last. */
export function traceback(error, whole, unfold) {
	const lines = String(error.traceback ?? "").trimEnd().split("\n");
	const shown = [];
	let folded = 0;
	let library = false;
	for (const [n, line] of lines.slice(0, -1).entries()) {
		if (/^\s*[\^~]+\s*$/.test(line)) continue;
		if (/^\s*File "/.test(line)) {
			library = /site-packages|lib\/python|windlass\/(runtime|handler)/.test(line);
			if (library && !whole) folded += 1;
		}
		if (!library || whole) shown.push(h("span", { key: n, class: /^\s{4}/.test(line) && !library ? "own" : "" }, line, "\n"));
	}
	const fold = folded > 0 && h("button.plain.slim", unfold, `… ${many(folded, "frame")} of libraries folded`);
	return h("div.traceback", h("div", h("bdi.strong", errorName(error.type)), ": ", bdi(String(error.message).slice(0, 400))),
		error.traceback && h("pre.small", shown, fold, h("span.last", lines.at(-1))));
}
