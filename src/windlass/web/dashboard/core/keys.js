// The keyboard. Keys are silent while a field has the focus, and can be turned off.

import { nextTheme, PAGES, visible } from "../app.js"; // which imports this: nothing of it is used before a key is pressed
import {
	allows, comboProps, dialog, get, go, h, href, icon, jobHref, jobsOf, listbox, live, openGate, rowsOf, setPaused, shared, tell,
} from "./kit.js";

const OFF = "windlass-keys-off";

export function keysHelp() {
	const list = (node) => node.append(document.getElementById("keys").content.cloneNode(true));
	const turn = (event) => localStorage.setItem(OFF, event.target.checked ? "0" : "1");
	const checked = localStorage.getItem(OFF) !== "1";
	tell(() => [h("div", { made: list }), h("label.row", h("input", { type: "checkbox", checked, onchange: turn }), "Single keys are on")], "Close", "");
}

export function startKeys({ pages, go, page }) {
	let after = null;
	const byKey = Object.fromEntries(Object.entries(pages).map(([name, [, , key]]) => [key, name]));
	const does = (event) => {
		if (after === "g" && byKey[event.key]) return () => go(byKey[event.key]);
		const own = page()?.keys?.[event.key];
		if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return null; // it presses what has the focus
		if (own) return own;
		const filter = document.querySelector("[data-filter]");
		return { "/": filter && (() => filter.focus()), p: () => setPaused(!live.paused), "?": keysHelp, u: () => history.back() }[event.key];
	};
	document.addEventListener("keydown", (event) => {
		if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
			event.preventDefault();
			return palette();
		}
		if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
		const field = event.target.closest?.("input, textarea, select, [contenteditable]");
		if (field && field.type !== "checkbox") {
			if (event.key === "Escape") field.blur();
			return;
		}
		if (localStorage.getItem(OFF) === "1") return;
		const found = does(event);
		after = event.key === "g" && after !== "g" ? "g" : null;
		if (!found) return;
		event.preventDefault();
		found(event);
	});
}

// Ctrl-K: go to a page, a queue, a type, a schedule or a pasted id, or do what the role allows.

const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const DIGITS = /^[0-9a-f]{6,12}$/i; // the end of an id, as pages show it
const GROUPS = ["Jobs", "Do", "Go to", "Queues", "Types", "Schedules"];

let names = null; // {types, schedules} as they were when the palette was opened first

async function loadNames() {
	const read = (key) => get(key).then((answer) => answer[key].map((row) => row.name), () => []);
	const [types, schedules] = await Promise.all([read("types"), read("schedules")]);
	names = { types, schedules };
}

function score(query, text) {
	const plain = text.toLowerCase();
	const at = plain.indexOf(query);
	if (at >= 0) return at / 100;
	let place = 0;
	for (const letter of query) {
		place = plain.indexOf(letter, place) + 1;
		if (!place) return null;
	}
	return 1 + plain.length / 100;
}

function entries(query, jobs) {
	const found = [];
	const add = (group, shape, text, more, run, points = score(query.toLowerCase(), text)) =>
		points !== null && found.push({ group, shape, text, more, run, points });
	for (const { id, type, state } of jobs) add("Jobs", state, `Open job ${id}`, `${type}, ${state}`, () => go(jobHref(id)), -1);
	if (UUID.test(query)) add("Jobs", "list", `Open job ${query}`, "", () => go(jobHref(query)));
	else if (/^-?[\w.]+:\S/.test(query)) add("Jobs", "search", `Search ${query}`, "filter", () => go(href("jobs", { filter: query })));
	const [shape, label] = live.paused ? ["play", "Go live"] : ["pause", "Pause this page"];
	add("Do", shape, label, "p", () => setPaused(!live.paused));
	const enqueue = () => import("../pages/enqueue.js").then((module) => module.enqueueDialog());
	if (allows("operator")) add("Do", "bolt", "Enqueue a job…", "", enqueue);
	add("Do", "moon", "Light or dark", "", nextTheme);
	for (const name of visible()) {
		const [title, shape, key] = PAGES[name];
		add("Go to", shape, title, `g ${key}`, () => go(href(name)));
	}
	for (const { queue, gate } of rowsOf("queue:")) {
		if (gate !== "open" && allows("operator")) add("Do", "hold", `Open gate of queue ${queue}…`, gate, () => openGate({ kind: "queue", name: queue }));
		add("Queues", "stack", queue, "jobs of this queue", () => go(jobsOf("queue", queue)));
	}
	for (const name of names?.types ?? []) add("Types", "bolt", name, "jobs of this type", () => go(jobsOf("type", name)));
	for (const name of names?.schedules ?? []) add("Schedules", "clock", name, "", () => go(href("schedules", { name })));
	found.sort((a, b) => a.points - b.points);
	const most = query ? 8 : 12;
	return GROUPS.flatMap((group) => found.filter((each) => each.group === group).slice(0, most)).slice(0, 40);
}

/** Open the palette at once: the letters that follow Ctrl-K are for its field. */
export function palette() {
	if (!shared.session || document.querySelector("dialog.palette")) return;
	let query = "";
	let chosen = 0;
	let jobs = [];
	let list = entries(query, jobs);
	return dialog((close, draw) => {
		const refresh = () => {
			list = entries(query, jobs);
			chosen = Math.min(chosen, Math.max(0, list.length - 1));
			draw();
		};
		if (!names) {
			names = {};
			loadNames().then(refresh);
		}
		const type = async (event) => {
			const mine = (query = event.target.value.trim());
			[chosen, jobs] = [0, []];
			refresh();
			if (!DIGITS.test(mine)) return;
			const found = (await get("jobs", { filter: `id:${mine}`, count: 5 })).jobs;
			if (mine !== query) return;
			jobs = found;
			refresh();
		};
		const run = (entry) => { close(); entry?.run(); };
		const keydown = (event) => {
			const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
			if (step) {
				chosen = (chosen + step + list.length) % Math.max(1, list.length);
				draw();
				document.getElementById(`results-${chosen}`)?.scrollIntoView({ block: "nearest" });
			} else if (event.key === "Enter") run(list[chosen]);
			else return;
			event.preventDefault();
		};
		const option = ({ shape, text, more }) => [icon(shape), h("bdi.clip", text), more && h("span.push", more)];
		const props = { placeholder: "Search or do…", autofocus: true, oninput: type, onkeydown: keydown };
		return [
			h("input", { ...comboProps("results", "Search or do", true, chosen), ...props }),
			listbox("results", "Results", list, chosen, run, option),
			!list.length && h("p.empty", "Nothing has this name."),
		];
	}, "palette");
}
