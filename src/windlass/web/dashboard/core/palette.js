// Ctrl-K: go to a page, a queue, a type, a schedule or a pasted id, or do something that the role allows.

import { allows, nextTheme, shared, visible } from "../app.js"; // which imports this: nothing of it is used before a key is pressed
import { get, live, setPaused } from "./data.js";
import { go, href, jobHref, jobsOf } from "./router.js";
import { h, icon } from "./dom.js";
import { dialog } from "./ui.js";

const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const DIGITS = /^[0-9a-f]{6,12}$/i; // the end of an id, as pages show it

let names = null; // {types, schedules} as they were when the palette was opened first

async function loadNames() {
	const read = (key) => get(key).then((answer) => answer[key].map((row) => row.name), () => []);
	const [types, schedules] = await Promise.all([read("types"), read("schedules")]);
	names = { types, schedules };
}

/** Whether the letters of the query are in the text, in order; lower is better. */
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
	const found = jobs.map(({ id, type, state }) => ({ group: "Jobs", shape: state, text: `Open job ${id}`, more: `${type}, ${state}`, points: -1, run: () => go(jobHref(id)) }));
	const add = (group, shape, text, more, run) => {
		const points = score(query.toLowerCase(), text);
		if (points !== null) found.push({ group, shape, text, more, run, points });
	};
	if (UUID.test(query)) add("Jobs", "list", `Open job ${query}`, "", () => go(jobHref(query)));
	else if (/^-?[\w.]+:\S/.test(query)) add("Jobs", "search", `Search ${query}`, "filter", () => go(href("jobs", { filter: query })));
	add("Do", live.paused ? "play" : "pause", live.paused ? "Go live" : "Pause this page", "p", () => setPaused(!live.paused));
	if (allows("operator")) add("Do", "bolt", "Enqueue a job…", "", () => import("../pages/enqueue.js").then((module) => module.enqueueDialog()));
	add("Do", "moon", "Light or dark", "", nextTheme);
	for (const name of visible()) {
		const [title, shape, key] = shared.pages[name];
		add("Go to", shape, title, `g ${key}`, () => go(href(name)));
	}
	for (const [key] of shared.overview) if (key.startsWith("queue:")) add("Queues", "stack", key.slice(6), "jobs of this queue", () => go(jobsOf("queue", key.slice(6))));
	for (const name of names?.types ?? []) add("Types", "bolt", name, "jobs of this type", () => go(jobsOf("type", name)));
	for (const name of names?.schedules ?? []) add("Schedules", "clock", name, "", () => go(href("schedules", { name })));
	const order = ["Jobs", "Do", "Go to", "Queues", "Types", "Schedules"];
	found.sort((a, b) => a.points - b.points);
	return order.flatMap((group) => found.filter((each) => each.group === group).slice(0, query ? 8 : 12)).slice(0, 40);
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
				document.getElementById(`palette-${chosen}`)?.scrollIntoView({ block: "nearest" });
			} else if (event.key === "Enter") run(list[chosen]);
			else return;
			event.preventDefault();
		};
		const option = (entry, n) => [entry.group !== list[n - 1]?.group && h("li.group", { key: entry.group, role: "presentation" }, entry.group),
			h("li", { key: entry.group + entry.text, id: `palette-${n}`, role: "option", "aria-selected": String(n === chosen), onclick: () => run(entry) }, icon(entry.shape), h("bdi.clip", entry.text), entry.more && h("span.push", entry.more))];
		return [
			h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-activedescendant": `palette-${chosen}`, "aria-label": "Search or do", placeholder: "Search, or do something", autofocus: true, oninput: type, onkeydown: keydown }),
			h("ul", { id: "palette-list", role: "listbox", "aria-label": "Results" }, list.map(option), !list.length && h("li.group", "Nothing has this name.")),
		];
	}, "palette");
}
