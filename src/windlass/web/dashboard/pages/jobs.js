// The list of jobs: one filter, facets, rows that do not move, and actions on one or on all that match.

import {
	act, ALL_VERBS, allows, bdi, bulkAct, capital, commandButton, copy, count, destroys, dialog, draw, empty, errorName, failure, filterBar, follow, get,
	go, h, href, icon, jobHref, lifeOf, next, Problem, quote, repeat, say, shell, skeleton, state, STATES, terms, toggleValue,
	two, valuesOf, verbOf, VERBS, withoutTerm,
} from "../core/kit.js";
import { enqueueDialog, rerunDialog } from "./enqueue.js";

const PAGE = 50;
const FOLLOW = 2000; // milliseconds between two looks at rows that no longer match
const COUNT = 5000; // milliseconds between two counts
const HEADS = [
	["State", "state"], ["Type", "type"], ["Queue, tenant", "queue"], ["Last error, or why it waits", "why"], ["Attempt", "attempt"],
	["Life", "life"], ["Next, changed", "next"],
];
const FIRST = "windlass enqueue app:add 2 3";

/** The rows of a filter; `fixed` is a part of it that the page itself sets, `nothing(filter, waysOut)` what an empty list shows. */
async function jobList(filter, fixed, nothing) {
	const whole = [fixed, filter].filter(Boolean).join(" ");
	let [rows, below, problem, loading, took, all, cursor, facets] = [[], null, null, true, null, false, -1, null];
	let leave = null;
	let heard = false; // the first rows of the stream may be older than those that were read
	let fresh = new Map(); // rows that came since, and wait to be shown
	const chosen = new Set();

	const chooseAll = (on) => {
		chosen.clear();
		all = on;
		draw();
	};
	const choose = (id) => {
		if (!chosen.delete(id)) {
			if (chosen.size >= PAGE) return say(`At most ${PAGE} jobs are chosen one by one: choose all that match.`, 8);
			chosen.add(id);
		}
		all = false;
		draw();
	};
	const countAll = async () => {
		if (problem) return;
		facets = await get("facets", { filter: whole }).catch(() => null);
		draw();
	};
	const load = async () => {
		leave?.();
		[loading, problem] = [true, null];
		const began = performance.now();
		try {
			({ jobs: rows, next: below } = await get("jobs", { filter: whole, count: PAGE }));
			took = performance.now() - began;
			fresh.clear();
			chooseAll(false);
			heard = false;
			leave = follow("jobs", { filter: whole }, learn);
		} catch (refused) {
			if (!(refused instanceof Problem) || refused.status === 401) throw refused;
			[problem, rows] = [refused, []];
		}
		loading = false;
		draw();
		countAll();
	};
	const older = async () => {
		const page = await get("jobs", { filter: whole, count: PAGE, below });
		[rows, below] = [[...rows, ...page.jobs], page.next];
		draw();
	};
	const showFresh = () => {
		rows = [...[...fresh.values()].sort((a, b) => (a.id < b.id ? 1 : -1)), ...rows];
		fresh.clear();
		draw();
	};
	/** Rows change in place; new ones wait until they are asked for, and one that left stays, greyed. */
	const learn = (told) => {
		const shown = new Set(rows.map((row) => row.id));
		const newest = rows[0]?.id ?? "";
		const oldest = [...told.keys()].sort()[0] ?? "";
		fresh = new Map([...told].filter(([id]) => !shown.has(id) && id > newest));
		rows = rows.map((row) => told.get(row.id) ?? (heard && row.id >= oldest && !row.gone ? { ...row, gone: true } : row));
		heard = true;
		if (!rows.length && fresh.size) showFresh();
		if (rows.some((row) => row.gone && !row.followed)) followGone();
	};
	/** The states of rows that match no longer: the list's stream does not have them. */
	const followGone = async () => {
		const asked = new Set(rows.filter((row) => row.gone && !row.ended).slice(0, PAGE).map((row) => row.id));
		if (!asked.size) return;
		for (const row of rows) if (asked.has(row.id)) row.followed = true;
		const { jobs } = await get("jobs", { filter: `id:${[...asked].join(",")}`, count: PAGE });
		const found = new Map(jobs.map((job) => [job.id, job]));
		const now = (row, job) => (job
			? { ...job, gone: true, followed: true, ended: Boolean(job.finished_at) }
			: { ...row, state: "cancelled", label: "gone", ended: true });
		rows = rows.map((row) => (row.gone && asked.has(row.id) ? now(row, found.get(row.id)) : row));
		draw();
	};

	const on = (does) => () => rows[cursor] && does(rows[cursor]);
	const move = (step) => () => {
		cursor = Math.max(0, Math.min(rows.length - 1, cursor + step));
		draw();
		document.querySelector("tr.cursor")?.scrollIntoView({ block: "nearest" });
	};
	const does = (...verbs) => on((job) => {
		const verb = verbOf(job.state, ...verbs);
		if (verb && allows("operator")) act(job, verb);
	});
	const edit = async ({ id }) => allows("operator") && rerunDialog(await get(`jobs/${id}`));
	const keys = {
		j: move(1), k: move(-1), ArrowDown: move(1), ArrowUp: move(-1),
		Enter: on(({ id }) => go(jobHref(id))), e: on(edit), x: on(({ id }) => choose(id)), a: () => chooseAll(!all), ".": showFresh,
		r: does("retry", "replay", "resume"), c: does("cancel"),
		y: on(({ id }) => copy(id, "Id copied")), Y: on(({ id }) => copy(`windlass jobs show ${id}`, "Command copied")),
		Escape: () => chooseAll(false),
	};

	const number = () => facets && count(facets.count, facets.counted);
	const line = (job, n) => {
		const { id, type, error, why } = job;
		const picked = all || chosen.has(id);
		const said = error && job.state !== "queued" ? `${errorName(error.type)}: ${error.message}` : (why?.text ?? "");
		const name = ["hoverable", n === cursor && "cursor", job.gone && "gone"].filter(Boolean).join(" ");
		const box = { type: "checkbox", label: `Choose ${type} ${id}`, checked: picked, onchange: () => choose(id) };
		return h("tr", { key: id, class: name, "aria-selected": String(picked) },
			h("td.c-box", h("input", box)),
			h("td.c-state", state(job.state, job.label)),
			h("td.c-type", h("a.name", { href: jobHref(id) }, h("bdi.clip.block", type)), h("bdi.two.clip", job.hint ?? id.slice(-12))),
			h("td.c-queue", h("bdi.clip.block", job.queue), h("bdi.two.clip", job.tenant)),
			h("td.c-why.quiet.small", h("bdi.clip.block", { title: said }, said.slice(0, 200))),
			h("td.c-attempt", `${job.attempt}/${job.max_attempts}`),
			h("td.c-life", lifeOf(job)),
			h("td.c-next", next(job)));
	};
	/** The ways out of a filter that finds nothing: without one of its terms, or without a filter. */
	const waysOut = (page) => {
		const each = terms(filter);
		const way = (text, to, less) => h("a.button", { key: text, href: href(to, { filter: less }) }, h("bdi.clip", text));
		return [each.length > 1 && each.slice(0, 3).map((term) => way(`Without ${term}`, page, withoutTerm(filter, term))),
			each.length > 0 && way(page === "dead" ? "All dead letters" : "All jobs", page), fixed && way("Search all jobs", "jobs", filter)];
	};
	const newer = ({ size }) => size > 0 && h("button.bare.newer", showFresh,
		`${size >= PAGE ? `${PAGE}+` : size} newer ${size === 1 ? "job matches" : "jobs match"}. Show them `, h("kbd", "."));
	const chooser = () => ({ type: "checkbox", label: "Choose all that match", checked: all, onchange: () => chooseAll(!all) });
	const table = () => {
		if (loading && !rows.length) return h("section.panel", skeleton());
		if (problem?.kind === "FilterError") return null; // the filter says it
		if (problem) return h("section.panel", failure(problem, load));
		if (!rows.length) return h("section.panel", nothing(filter, waysOut));
		return h("section.panel", newer(fresh),
			h("div.scroll", h("table.cards.jobs",
				h("thead", h("tr", h("th.c-box", h("input", chooser())), HEADS.map(([title, name]) => h(`th.c-${name}`, title)))),
				h("tbody", rows.map(line)))),
			h("footer", `${count(rows.length)} shown${facets ? ` of ${number()}` : ""}, newest first`,
				h("span.wide-only", "· line waits, bar runs, dashes back off"),
				h("span.push", below && h("button.slim", older, icon("right"), "Older"))));
	};
	const facetView = (bar) => {
		const toggle = (field, value, excludes) => bar.set(excludes
			? `${filter} -${field}:${quote(value)}`.trim()
			: toggleValue(filter, field, quote(value)));
		const entry = (field, value, number, shown) => h("button.bare", {
			key: value, title: "Alt-click excludes", "aria-pressed": String(valuesOf(filter, field).includes(quote(value))),
			onclick: (event) => toggle(field, value, event.altKey),
		}, shown, number != null && h("span.count", count(number, facets?.counted)));
		const group = (field, entries) => entries.length > 0 && h("div", { key: field }, h("h2", capital(field)), entries);
		const values = (field) => Object.entries(facets[`${field}s`]).slice(0, 8)
			.map(([value, number]) => entry(field, value, number, h("bdi.clip", value)));
		return h("aside.facets", { label: "Facets" },
			group("state", STATES.map((name) => entry("state", name, facets ? (facets.states[name] ?? 0) : undefined, state(name)))),
			facets && ["queue", "type", "tenant"].map((field) => group(field, values(field))));
	};
	const bulkBar = () => {
		if ((!all && !chosen.size) || !allows("operator")) return null;
		const picked = rows.filter((row) => all || chosen.has(row.id));
		const counted = all && facets ? Object.entries(facets.states) : picked.map((row) => [row.state, 1]);
		const able = (verb) => counted.reduce((sum, [name, size]) => sum + (VERBS[name].includes(verb) && size), 0);
		const bulk = (verb) => bulkAct(verb, all ? whole : `id:${[...chosen].join(",")}`, load);
		const button = (verb) =>
			h("button.slim", { key: verb, class: destroys(verb) ? "danger" : "", onclick: () => bulk(verb) }, `${capital(verb)} ${count(able(verb), facets?.counted)}…`);
		return h("div.bulkbar", { role: "region", label: "Chosen jobs" },
			h("strong", all ? `All that match${facets ? `: ${number()}` : ""}` : `${count(chosen.size)} chosen`),
			ALL_VERBS.filter(able).map(button),
			!all && chosen.size === 1 && h("button.slim", () => edit(picked[0]), icon("pen"), "Edit, run again…"),
			!all && h("button.plain.slim", () => chooseAll(true), "Choose all that match"),
			h("button.plain.slim", () => chooseAll(false), "Clear"));
	};

	await load();
	const ends = [repeat(followGone, FOLLOW), repeat(countAll, COUNT)];
	const close = () => [leave, ...ends].forEach((end) => end?.());
	return {
		whole, load, keys, close, table, facetView, bulkBar, number,
		get rows() { return rows; },
		get facets() { return facets; },
		get took() { return took; },
		get mistake() { return problem?.kind === "FilterError" && problem; },
	};
}

export async function openList(params, page, fixed, nothing) {
	const filter = params.get("filter") ?? "";
	const list = await jobList(filter, fixed, nothing);
	const bar = filterBar({ filter, fixed, change: (next) => go(href(page, { filter: next })) });
	return { list, bar, filter, keys: list.keys, close: list.close };
}

function noJobs(filter, waysOut) {
	const searched = "Searched every job that is stored, also those that have ended.";
	if (filter) return empty("search", ["No job matches ", bdi(filter)], [searched], waysOut("jobs"));
	return empty("bolt", "No job yet", ["Enqueue one from your program, or with", h("code", FIRST)],
		[commandButton(FIRST, "Copy command", { class: "primary" }), allows("operator") && h("button", enqueueDialog, "Enqueue…")]);
}

export async function open({ params }) {
	const { list, bar, filter, ...page } = await openList(params, "jobs", "", noJobs);
	const sheet = () => dialog((close) => h("div", { onclick: (event) => event.target.closest("button") && close() }, list.facetView(bar)));
	const side = () => h("span.row.quiet.small.nowrap", h("button.slim.narrow-only", sheet, "Facets"),
		list.facets && `${list.number()} jobs`, list.took !== null && h("span.wide-only", ` ${Math.round(list.took)} ms`),
		filter && h("button.bare.close", { label: "Clear the filter", onclick: () => bar.set("") }, icon("cross")),
		h("button.slim.wide-only", () => copy(location.href, "Link copied"), "Copy link"),
		commandButton(`windlass jobs list ${filter && shell(filter)}`.trim(), "Copy as CLI", { class: "slim wide-only" }));
	return {
		...page,
		title: "Jobs",
		bar: () => allows("operator") && h("button", enqueueDialog, "Enqueue…"),
		view: () => [
			bar.view(list.mistake, side()),
			h("div.with-facets", list.facetView(bar), h("div.stack", list.table())),
			list.bulkBar(),
		],
	};
}
