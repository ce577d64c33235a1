// The list of jobs: one filter, facets, rows that do not move, and actions on one or on all that match.

import { act, bulkAct, capital, copy, count, destroys, empty, failure, FilterBar, follow, get, go, h, href, icon, jobHref, lifeOf, next, Problem, quote, repeat, say, skeleton, state, STATES, table, terms, toggleValue, valuesOf, verbOf, VERBS, withoutTerm } from "../core/kit.js";
import { enqueueDialog } from "./enqueue.js";

const PAGE = 50;
const FOLLOW = 2000; // milliseconds between two looks at rows that no longer match
const COUNT = 5000; // milliseconds between two counts
const HEADS = [["State", "c-state"], ["Type", "c-type"], ["Queue, tenant", "c-queue"], ["Last error, or why it waits", ""], ["Attempt", "right c-attempt"], ["Life", "c-life"], ["Next, changed", "right c-next"]];
const FIRST = "windlass enqueue app:add 2 3";

export class JobList {
	/** Rows of a filter; `fixed` is a part of the filter that the page itself sets. */
	constructor({ filter, fixed = "", draw, allows }) {
		Object.assign(this, { filter, fixed, draw, allows, rows: [], next: null, problem: null, loading: true, took: null, all: false, cursor: -1, facets: null });
		this.fresh = new Map(); // rows that came since, and wait to be shown
		this.chosen = new Set();
		this.ends = [repeat(() => this.follow(), FOLLOW), repeat(() => this.count(), COUNT)];
	}

	get whole() {
		return [this.fixed, this.filter].filter(Boolean).join(" ");
	}

	async load() {
		this.leave?.();
		this.loading = true;
		this.problem = null;
		const began = performance.now();
		try {
			const page = await get("jobs", { filter: this.whole, count: PAGE });
			this.took = performance.now() - began;
			this.rows = page.jobs;
			this.next = page.next;
			this.fresh.clear();
			this.choose(null);
			this.leave = follow("jobs", { filter: this.whole }, (rows) => this.learn(rows));
		} catch (problem) {
			if (!(problem instanceof Problem) || problem.status === 401) throw problem;
			this.problem = problem;
			this.rows = [];
		}
		this.loading = false;
		this.draw();
		this.count();
	}

	/** How many match, by state, queue, type and tenant. */
	async count() {
		if (this.problem) return;
		this.facets = await get("facets", { filter: this.whole }).catch(() => null);
		this.draw();
	}

	async older() {
		const page = await get("jobs", { filter: this.whole, count: PAGE, below: this.next });
		this.rows = [...this.rows, ...page.jobs];
		this.next = page.next;
		this.draw();
	}

	/** Rows change in place; new ones wait until they are asked for, and one that left stays, greyed. */
	learn(rows) {
		const shown = new Set(this.rows.map((row) => row.id));
		const newest = this.rows[0]?.id ?? "";
		this.fresh = new Map([...rows].filter(([id]) => !shown.has(id) && id > newest));
		const oldest = [...rows.keys()].sort()[0] ?? "";
		this.rows = this.rows.map((row) => rows.get(row.id) ?? (row.id >= oldest && !row.gone ? { ...row, gone: true } : row));
		if (!this.rows.length && this.fresh.size) this.showFresh();
		if (this.rows.some((row) => row.gone && !row.followed)) this.follow();
	}

	/** The states of rows that match no longer: the list's stream does not have them. */
	async follow() {
		const asked = new Set(this.rows.filter((row) => row.gone && !row.ended).slice(0, PAGE).map((row) => row.id));
		if (!asked.size) return;
		for (const row of this.rows) if (asked.has(row.id)) row.followed = true;
		const { jobs } = await get("jobs", { filter: `id:${[...asked].join(",")}`, count: PAGE });
		const found = new Map(jobs.map((job) => [job.id, job]));
		this.rows = this.rows.map((row) => {
			if (!row.gone || !asked.has(row.id)) return row;
			const job = found.get(row.id);
			return job ? { ...job, gone: true, followed: true, ended: Boolean(job.finished_at) } : { ...row, state: "cancelled", label: "gone", ended: true };
		});
		this.draw();
	}

	showFresh() {
		this.rows = [...[...this.fresh.values()].sort((a, b) => (a.id < b.id ? 1 : -1)), ...this.rows];
		this.fresh.clear();
		this.draw();
	}

	close() {
		this.leave?.();
		for (const end of this.ends) end();
	}

	keys() {
		const row = () => this.rows[this.cursor];
		const on = (does) => () => row() && does(row());
		const move = (step) => () => {
			this.cursor = Math.max(0, Math.min(this.rows.length - 1, this.cursor + step));
			this.draw();
			document.querySelector("tr.cursor")?.scrollIntoView({ block: "nearest" });
		};
		const verb = (...verbs) => on((job) => {
			const found = verbOf(job.state, ...verbs);
			if (found && this.allows("operator")) act(job, found);
		});
		const enter = on((job) => go(jobHref(job.id)));
		return {
			j: move(1), k: move(-1), ArrowDown: move(1), ArrowUp: move(-1),
			Enter: enter, e: enter,
			x: on((job) => this.choose(job.id)),
			a: () => this.chooseAll(!this.all),
			".": () => this.showFresh(),
			r: verb("retry", "replay", "resume"), c: verb("cancel"),
			y: on((job) => copy(job.id, "Id copied")),
			Y: on((job) => copy(`windlass jobs show ${job.id}`, "Command copied")),
			Escape: () => this.choose(null),
		};
	}

	chooseAll(all) {
		this.chosen.clear();
		this.all = all;
		this.draw();
	}

	/** Choose a row, or no longer; null: choose none. */
	choose(id) {
		if (id === null) return this.chooseAll(false);
		if (!this.chosen.delete(id)) {
			if (this.chosen.size >= 50) return say("At most 50 jobs are chosen one by one. For more, narrow the filter and choose all.", 8);
			this.chosen.add(id);
		}
		this.all = false;
		this.draw();
	}

	// Views

	number() {
		return this.facets && count(this.facets.count, this.facets.counted);
	}

	line(job, n) {
		const chosen = this.all || this.chosen.has(job.id);
		const said = job.error && job.state !== "queued" ? `${job.error.type}: ${job.error.message}` : (job.why?.text ?? "");
		return h("tr.hoverable", { key: job.id, class: [n === this.cursor ? "cursor" : "", job.gone ? "gone" : ""].join(" "), "aria-selected": String(chosen) },
			h("td.wide-only", h("input", { type: "checkbox", checked: chosen, "aria-label": `Choose ${job.type} ${job.id}`, onchange: () => this.choose(job.id) })),
			h("td", state(job.state, job.label)),
			h("td.full", h("a.name", { href: jobHref(job.id) }, h("bdi.clip.block", job.type)), h("bdi.two.clip", job.hint ?? job.id.slice(-12))),
			h("td.wide-only", h("bdi", job.queue), h("bdi.two", job.tenant)),
			h("td.quiet.small", h("bdi.clip.block", { title: said }, said.slice(0, 200))),
			h("td.right.wide-only", `${job.attempt}/${job.max_attempts}`),
			h("td.wide-only", lifeOf(job)),
			h("td.right", next(job)));
	}

	nothing() {
		if (this.whole) return empty("search", ["No job matches ", h("bdi", this.whole)], ["Searched every job that is stored, also those that have ended."], this.waysOut("jobs"));
		return empty("bolt", "No job yet", ["Enqueue one from your program, or with", h("code", FIRST)],
			[h("button.primary", () => copy(FIRST, "Command copied"), icon("copy"), "Copy command"), this.allows("operator") && h("button", enqueueDialog, "Enqueue…")]);
	}

	/** The ways out of a filter that finds nothing: without one of its terms, or without a filter. */
	waysOut(page) {
		const each = terms(this.filter);
		const way = (text, page, filter) => h("a.button", { key: text, href: href(page, { filter }) }, h("bdi.clip", text));
		return [each.length > 1 && each.slice(0, 3).map((term) => way(`Without ${term}`, page, withoutTerm(this.filter, term))),
			each.length > 0 && way(page === "dead" ? "All dead letters" : "All jobs", page), this.fixed && way("Search all jobs", "jobs", this.filter)];
	}

	table() {
		if (this.loading && !this.rows.length) return h("section.panel", skeleton());
		if (this.problem?.kind === "FilterError") return null; // the filter says it
		if (this.problem) return h("section.panel", failure(this.problem, () => this.load()));
		if (!this.rows.length) return h("section.panel", this.nothing());
		const { size } = this.fresh;
		return h("section.panel",
			size > 0 && h("button.bare.newer", () => this.showFresh(), `${size >= PAGE ? `${PAGE}+` : size} newer ${size === 1 ? "job matches" : "jobs match"}. Show them `, h("kbd", ".")),
			h("div.scroll", h("table.cards.jobs",
				h("thead", h("tr", h("th.c-box", h("input", { type: "checkbox", "aria-label": "Choose all that match", checked: this.all, onchange: () => this.chooseAll(!this.all) })), HEADS.map(([title, name]) => h("th", { class: name }, title)))),
				h("tbody", this.rows.map((job, n) => this.line(job, n))))),
			h("footer", `${count(this.rows.length)} shown${this.facets ? ` of ${this.number()}` : ""}, newest first`, h("span.wide-only", "· line waits, bar runs, dashes back off"),
				h("span.push", this.next && h("button.slim", () => this.older(), icon("right"), "Older"))));
	}

	facetView(bar) {
		const { facets, filter } = this;
		const entry = (field, value, number, shown) => h("button.bare", { key: value, "aria-pressed": String(valuesOf(filter, field).includes(quote(value))), title: "Alt-click excludes", onclick: (event) => bar.set(event.altKey ? `${filter} -${field}:${quote(value)}`.trim() : toggleValue(filter, field, quote(value))) }, shown, number !== undefined && h("span.count", count(number, facets?.counted)));
		const group = (field, entries) => entries.length > 0 && h("div", { key: field }, h("h2", capital(field)), entries);
		return h("aside.facets", { "aria-label": "Facets" },
			group("state", STATES.map((name) => entry("state", name, facets ? (facets.states[name] ?? 0) : undefined, state(name)))),
			facets && ["queue", "type", "tenant"].map((field) => group(field, Object.entries(facets[`${field}s`]).slice(0, 8).map(([value, number]) => entry(field, value, number, h("bdi.clip", value))))));
	}

	bulkBar() {
		if ((!this.all && !this.chosen.size) || !this.allows("operator")) return null;
		const filter = this.all ? this.whole : `id:${[...this.chosen].join(",")}`;
		const states = new Set(this.rows.filter((row) => this.all || this.chosen.has(row.id)).map((row) => row.state));
		const verbs = new Set([...states].flatMap((each) => VERBS[each].map(([verb]) => verb)));
		return h("div.bulkbar", { role: "region", "aria-label": "Chosen jobs" }, h("strong", this.all ? `All that match${this.facets ? `: ${this.number()}` : ""}` : `${count(this.chosen.size)} chosen`),
			["retry", "replay", "resume", "cancel", "discard"].filter((verb) => verbs.has(verb)).map((verb) => h("button.slim", { key: verb, class: destroys(verb) ? "danger" : "", onclick: () => bulkAct(verb, filter, () => this.load()) }, `${capital(verb)}…`)),
			!this.all && h("button.plain.slim", () => this.chooseAll(true), "Choose all that match"),
			h("button.plain.slim", () => this.choose(null), "Clear"));
	}
}

/** A list and its filter, as a page has them. */
export async function openList(context, page, fixed, more = {}) {
	const list = Object.assign(new JobList({ ...context, fixed, filter: context.params.get("filter") ?? "" }), more);
	const bar = new FilterBar({ filter: list.filter, fixed, draw: context.draw, change: (filter) => go(href(page, { filter })) });
	await list.load();
	const filter = (side) => {
		bar.problem = list.problem?.kind === "FilterError" ? list.problem.message : null;
		return bar.view(side);
	};
	return { list, bar, filter, keys: list.keys(), close: () => list.close() };
}

export async function open(context) {
	const { list, bar, filter, ...page } = await openList(context, "jobs");
	const command = () => `windlass jobs list ${list.filter ? `'${list.filter}'` : ""}`.trim();
	return {
		...page,
		title: "Jobs",
		bar: () => context.allows("operator") && h("button", enqueueDialog, "Enqueue…"),
		view: () => [
			filter(h("span.row.quiet.small.nowrap",
				list.facets && `${list.number()} jobs`, list.took !== null && h("span.wide-only", ` ${Math.round(list.took)} ms`),
				list.filter && h("button.bare.close", { "aria-label": "Clear the filter", onclick: () => bar.set("") }, icon("cross")),
				h("button.slim.wide-only", () => copy(location.href, "Link copied"), "Copy link"),
				h("button.slim.wide-only", () => copy(command(), "Command copied"), icon("copy"), "Copy as CLI"))),
			h("div.with-facets", list.facetView(bar), h("div.stack", list.table())),
			list.bulkBar(),
		],
	};
}
