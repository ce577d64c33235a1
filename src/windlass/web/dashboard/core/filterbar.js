// The filter of a page: terms as tokens, a field for the next one, and suggestions from the server.

import { get } from "./data.js";
import { bdi, h, icon, quiet } from "./dom.js";
import { count } from "./format.js";
import { draw } from "./session.js";
import { comboProps, listbox } from "./ui.js";

/** A term of a filter: white space is between them, except inside quotes. */
const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;

export const terms = (text) => text.match(TERM) ?? [];
export const withoutTerm = (text, term) => terms(text).filter((each) => each !== term).join(" ");

const termOf = (text, field) => terms(text).find((term) => term.startsWith(`${field}:`));

export const valuesOf = (text, field) => termOf(text, field)?.slice(field.length + 1).split(",") ?? [];

/** Put a value to a field's term, or take it away: state:failed and state:dead become state:failed,dead. */
export function toggleValue(text, field, value) {
	const values = valuesOf(text, field);
	const next = values.includes(value) ? values.filter((each) => each !== value) : [...values, value];
	const rest = terms(text).filter((term) => term !== termOf(text, field));
	return [...rest, ...(next.length ? [`${field}:${next.join(",")}`] : [])].join(" ");
}

/** The bar of a filter; `fixed` is the page's own part, `change(filter)` opens another. */
export function filterBar({ filter, fixed = "", change }) {
	let typed = "";
	let suggested = [];
	let chosen = -1;
	let open = false;
	let abort = null;

	const set = (next) => {
		filter = next;
		typed = "";
		open = false;
		change(next);
	};
	const close = () => {
		open = false;
		draw();
	};
	const suggest = async () => {
		abort?.abort();
		abort = new AbortController();
		try {
			const text = (filter ? `${filter} ` : "") + typed;
			suggested = (await get("suggestions", { text }, abort.signal)).suggestions;
			open = true;
			chosen = -1;
			draw();
		} catch {
			suggested = [];
		}
	};
	const accept = (text) => {
		typed = text;
		if (text.endsWith(":")) suggest();
		else set([...new Set([...terms(filter), text])].join(" "));
		draw();
	};
	/** The suggestion that Enter takes: the chosen one, else the first one that goes on from what is typed. */
	const offered = () => {
		if (!open) return null;
		return suggested[chosen] ?? suggested.find(({ text, kind }) => typed && kind !== "mistake" && text.startsWith(typed));
	};
	const keydown = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (step && suggested.length) {
			open = true;
			chosen = (chosen + step + suggested.length) % suggested.length;
			draw();
		} else if (event.key === "Tab" && !event.shiftKey && typed && offered()) accept(offered().text);
		else if (event.key === "Enter") {
			if (offered()) accept(offered().text);
			else if (typed.trim()) set([filter, typed.trim()].filter(Boolean).join(" "));
		} else {
			if (event.key === "Backspace" && !typed && filter) set(terms(filter).slice(0, -1).join(" "));
			else if (event.key === "Escape") close();
			return;
		}
		event.preventDefault();
	};
	/** The term with the mistake, whose place is one in the whole filter. */
	const wrongTerm = ({ position }) => {
		const place = position - (fixed ? fixed.length + 1 : 0);
		return [...filter.matchAll(TERM)].find(({ index, 0: term }) => index <= place && place < index + term.length)?.[0];
	};
	const field = () => h("input", {
		...comboProps("suggestions", "Filter", open, chosen),
		key: "field", "data-filter": true, value: typed, placeholder: filter ? "" : "Add a filter, or paste an id",
		oninput: (event) => { typed = event.target.value; suggest(); },
		onfocus: suggest, onblur: () => setTimeout(close, 200), onkeydown: keydown,
	});
	const suggestion = ({ text, said, count: number }) => [bdi(text), said && quiet(said),
		number !== null && number !== undefined && h("span.count", count(number, 10000))];
	const view = (problem, side) => {
		const wrong = problem && wrongTerm(problem);
		const token = (term) => h("span.term", { key: term, class: term === wrong ? "wrong" : "" }, h("bdi.clip", term),
			h("button.bare", { label: `Remove ${term}`, onclick: () => set(withoutTerm(filter, term)) }, icon("cross")));
		return h("div.filterbar",
			h("div.box", icon("search"), terms(filter).map(token), field(), side),
			problem && h("p.mistake", { role: "alert" }, problem.message),
			open && suggested.length > 0 && h("div.suggestions",
				listbox("suggestions", "Suggestions", suggested, chosen, ({ text }) => accept(text), suggestion)));
	};
	return { set, view };
}
