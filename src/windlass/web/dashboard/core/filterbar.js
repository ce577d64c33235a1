// The filter of a page: terms as tokens, a field for the next one, and suggestions from the server.

import { get } from "./data.js";
import { count } from "./format.js";
import { h, icon } from "./dom.js";

/** A term of a filter: white space is between them, except inside quotes. */
const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;

export function terms(text) {
	return text.match(TERM) ?? [];
}

const withTerm = (text, term) => [...new Set([...terms(text), term])].join(" ");
export const withoutTerm = (text, term) => terms(text).filter((each) => each !== term).join(" ");

/** Put a value to a field's term, or take it away: state:failed and state:dead become state:failed,dead. */
export function toggleValue(text, field, value) {
	const values = valuesOf(text, field);
	const next = values.includes(value) ? values.filter((each) => each !== value) : [...values, value];
	const rest = terms(text).filter((term) => term !== termOf(text, field));
	return [...rest, ...(next.length ? [`${field}:${next.join(",")}`] : [])].join(" ");
}

const termOf = (text, field) => terms(text).find((term) => term.startsWith(`${field}:`));

export function valuesOf(text, field) {
	return termOf(text, field)?.slice(field.length + 1).split(",") ?? [];
}

export class FilterBar {
	constructor({ filter, fixed = "", change, draw }) {
		this.filter = filter;
		this.before = fixed ? fixed.length + 1 : 0; // characters in front of it in what is asked
		this.change = change;
		this.draw = draw;
		this.typed = "";
		this.suggested = [];
		this.chosen = -1;
		this.open = false;
		this.problem = null; // of the last request: its place is underlined
		this.abort = null;
	}

	set(filter) {
		this.filter = filter;
		this.typed = "";
		this.open = false;
		this.change(filter);
	}

	async suggest() {
		this.abort?.abort();
		this.abort = new AbortController();
		try {
			const before = this.filter ? `${this.filter} ` : "";
			const answer = await get("suggestions", { text: before + this.typed }, this.abort.signal);
			this.suggested = answer.suggestions;
			this.open = true;
			this.chosen = -1;
			this.draw();
		} catch {
			this.suggested = [];
		}
	}

	accept(text) {
		this.typed = text;
		if (text.endsWith(":")) this.suggest();
		else this.set(withTerm(this.filter, text));
		this.draw();
	}

	/** The suggestion that Enter takes: the chosen one, else the first one that goes on from what is typed. */
	offered() {
		if (!this.open) return null;
		if (this.chosen >= 0) return this.suggested[this.chosen];
		return this.suggested.find((each) => this.typed && each.kind !== "mistake" && each.text.startsWith(this.typed));
	}

	keydown(event) {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (step && this.suggested.length) {
			event.preventDefault();
			this.chosen = (this.chosen + step + this.suggested.length) % this.suggested.length;
			this.draw();
		} else if (event.key === "Tab" && this.open && this.suggested.length && !event.shiftKey && this.typed) {
			event.preventDefault();
			this.accept(this.suggested[Math.max(0, this.chosen)].text);
		} else if (event.key === "Enter") {
			event.preventDefault();
			const taken = this.offered();
			if (taken) this.accept(taken.text);
			else this.set([this.filter, this.typed.trim()].filter(Boolean).join(" "));
		} else if (event.key === "Backspace" && !this.typed && this.filter) {
			this.set(terms(this.filter).slice(0, -1).join(" "));
		} else if (event.key === "Escape") {
			this.open = false;
			this.draw();
		}
	}

	/** The term with the mistake: the message says at which character it is. */
	wrong() {
		const place = /at character (\d+)/.exec(this.problem)?.[1] - 1 - this.before;
		return [...this.filter.matchAll(TERM)].find((found) => found.index <= place && place < found.index + found[0].length)?.[0];
	}

	view(side) {
		return h("div.filterbar",
			h("div.box", icon("search"),
				terms(this.filter).map((term) => h("span.term", { key: term, class: term === this.wrong() ? "wrong" : "" }, h("bdi.clip", term),
					h("button.bare", { "aria-label": `Remove ${term}`, onclick: () => this.set(withoutTerm(this.filter, term)) }, icon("cross")))),
				h("input", { key: "field", type: "text", "data-filter": true, value: this.typed, placeholder: this.filter ? "" : "Add a filter, or paste an id", role: "combobox", autocomplete: "off", spellcheck: "false",
					"aria-expanded": String(this.open), "aria-controls": "suggestions", "aria-label": "Filter", "aria-activedescendant": this.chosen >= 0 ? `suggestion-${this.chosen}` : null,
					oninput: (event) => { this.typed = event.target.value; this.suggest(); }, onfocus: () => this.suggest(),
					onblur: () => setTimeout(() => { this.open = false; this.draw(); }, 200), onkeydown: (event) => this.keydown(event) }),
				side),
			this.problem && h("p.mistake", { role: "alert" }, this.problem),
			this.open && this.suggested.length > 0 && h("div.suggestions", h("ul", { id: "suggestions", role: "listbox", "aria-label": "Suggestions" },
				this.suggested.map((each, n) => h("li", { key: each.text, id: `suggestion-${n}`, role: "option", "aria-selected": String(n === this.chosen), onmousedown: (event) => { event.preventDefault(); this.accept(each.text); } },
					h("bdi", each.text), each.said && h("span.quiet", each.said), each.count !== null && each.count !== undefined && h("span.count", count(each.count, 10000)))))));
	}
}
