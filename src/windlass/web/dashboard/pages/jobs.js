// The list of jobs: one filter, facets, rows that do not move, and actions on one or on all that match.

import { get, Problem } from "../core/api.js";
import { h } from "../core/dom.js";
import { FilterBar, terms, toggleValue, valuesOf, withoutTerm } from "../core/filterbar.js";
import { count } from "../core/format.js";
import { act, bulkAct, jobHref, lifeOf, next, openJob, VERBS } from "../core/jobs.js";
import { repeat, Stream } from "../core/live.js";
import { icon, state, STATES } from "../core/marks.js";
import { quote } from "../core/palette.js";
import { go, href } from "../core/router.js";
import { copy, empty, failure, say, skeleton } from "../core/ui.js";
import { enqueueDialog } from "./enqueue.js";

const PAGE = 50;
const FOLLOW = 2000; // milliseconds between two looks at rows that no longer match

export class JobList {
  /** Rows of a filter; `fixed` is a part of the filter that the page itself sets. */
  constructor({ filter, fixed = "", draw, allows }) {
    Object.assign(this, { filter, fixed, draw, allows });
    this.rows = [];
    this.fresh = new Map(); // rows that came since, and wait to be shown
    this.next = null;
    this.problem = null;
    this.loading = true;
    this.took = null;
    this.chosen = new Set();
    this.all = false;
    this.cursor = -1;
    this.facets = null;
    this.stop = repeat(() => this.follow(), FOLLOW);
  }

  get whole() {
    return [this.fixed, this.filter].filter(Boolean).join(" ");
  }

  async load() {
    this.stream?.close();
    this.loading = true;
    this.problem = null;
    const began = performance.now();
    try {
      const page = await get("jobs", { filter: this.whole, count: PAGE });
      this.took = performance.now() - began;
      this.rows = page.jobs;
      this.next = page.next;
      this.fresh.clear();
      this.chosen.clear();
      this.all = false;
      this.stream = new Stream({ list: "jobs", filter: this.whole }, (rows) => this.learn(rows), async (read) => ({ jobs: Object.fromEntries((await read("jobs", { filter: this.whole })).jobs.map((job) => [job.id, job])) }));
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.status === 401) throw problem;
      this.problem = problem;
      this.rows = [];
    }
    this.loading = false;
    this.draw();
    this.loadFacets();
  }

  async loadFacets() {
    try {
      this.facets = await get("facets", { filter: this.whole });
    } catch {
      this.facets = null;
    }
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
    const shown = new Map(this.rows.map((row) => [row.id, row]));
    this.fresh.clear();
    const newest = this.rows[0]?.id ?? "";
    for (const [id, row] of rows) {
      if (!shown.has(id) && id > newest) this.fresh.set(id, row);
    }
    const oldest = [...rows.keys()].sort()[0] ?? "";
    this.rows = this.rows.map((row) => {
      if (rows.has(row.id)) return rows.get(row.id);
      const gone = rows.size > 0 || this.rows.length > 0;
      return gone && (row.id >= oldest || !rows.size) && !row.gone ? { ...row, gone: true } : row;
    });
    if (!this.rows.length && this.fresh.size) this.showFresh();
    if (this.rows.some((row) => row.gone && !row.followed)) this.follow();
  }

  /** The states of rows that match no longer: the list's stream does not have them. */
  async follow() {
    const rows = this.rows.filter((row) => row.gone && !row.ended).slice(0, PAGE);
    if (!rows.length) return;
    for (const row of rows) row.followed = true;
    const { jobs } = await get("jobs", { filter: `id:${rows.map((row) => row.id).join(",")}`, count: PAGE });
    const found = new Map(jobs.map((job) => [job.id, job]));
    const asked = new Set(rows.map((row) => row.id));
    this.rows = this.rows.map((row) => {
      if (!row.gone || !asked.has(row.id)) return row;
      const job = found.get(row.id);
      if (!job) return { ...row, state: "cancelled", label: "gone", ended: true };
      return { ...job, gone: true, followed: true, ended: Boolean(job.finished_at) };
    });
    this.draw();
  }

  showFresh() {
    const added = [...this.fresh.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
    this.rows = [...added, ...this.rows];
    this.fresh.clear();
    this.draw();
  }

  close() {
    this.stop();
    this.stream?.close();
  }

  // Keys

  keys() {
    const move = (step) => () => {
      this.cursor = Math.max(0, Math.min(this.rows.length - 1, this.cursor + step));
      this.draw();
      document.querySelector("tr.cursor")?.scrollIntoView({ block: "nearest" });
    };
    const row = () => this.rows[this.cursor];
    const verb = (...verbs) => () => {
      const found = row() && VERBS[row().state].find(([name]) => verbs.includes(name));
      if (found && this.allows("operator")) act(row(), found[0]);
    };
    return {
      j: move(1), k: move(-1), ArrowDown: move(1), ArrowUp: move(-1),
      Enter: () => row() && openJob(row().id),
      x: () => row() && this.choose(row().id),
      a: () => { this.all = !this.all; this.draw(); },
      ".": () => this.showFresh(),
      r: verb("retry", "replay", "resume"), c: verb("cancel"), e: () => row() && openJob(row().id),
      y: () => row() && copy(row().id, "Id copied"),
      Y: () => row() && copy(`windlass jobs show ${row().id}`, "Command copied"),
      Escape: () => { this.chosen.clear(); this.all = false; this.draw(); },
    };
  }

  choose(id) {
    if (!this.chosen.delete(id)) {
      if (this.chosen.size >= 50) return say("At most 50 jobs are chosen one by one. For more, narrow the filter and choose all.", 8);
      this.chosen.add(id);
    }
    this.all = false;
    this.draw();
  }

  // Views

  line(job, n) {
    const chosen = this.all || this.chosen.has(job.id);
    return h("tr.hoverable", { key: job.id, class: [n === this.cursor ? "cursor" : "", job.gone ? "gone" : ""].join(" "), "aria-selected": String(chosen) },
      h("td.wide-only", h("input", { type: "checkbox", checked: chosen, "aria-label": `Choose ${job.type} ${job.id}`, onchange: () => this.choose(job.id) })),
      h("td", state(job.state, { label: job.label })),
      h("td.full", h("a.name", { href: jobHref(job.id) }, h("bdi.clip.block", job.type)), h("bdi.two.clip", job.hint ?? job.id.slice(-12))),
      h("td.wide-only", h("bdi", job.queue), h("bdi.two", job.tenant)),
      h("td.quiet.small", h("bdi.clip.block", { title: job.error?.message ?? job.why?.text ?? null }, (job.error && job.state !== "queued" ? `${job.error.type}: ${job.error.message}` : (job.why?.text ?? "")).slice(0, 200))),
      h("td.right.wide-only", `${job.attempt}/${job.max_attempts}`),
      h("td.wide-only", lifeOf(job)),
      h("td.right", next(job)));
  }

  nothing() {
    if (!this.whole) {
      return empty("bolt", "No job yet", ["Enqueue one from your program, or with", h("code", "windlass enqueue app:add 2 3")],
        [h("button.button.primary", { type: "button", onclick: () => copy("windlass enqueue app:add 2 3", "Command copied") }, icon("copy"), "Copy command"), this.allows("operator") && h("button.button", { type: "button", onclick: () => enqueueDialog() }, "Enqueue…")]);
    }
    return empty("search", ["No job matches ", h("bdi", this.whole)], ["Searched every job that is stored, also those that have ended."], this.waysOut("jobs"));
  }

  /** Where somebody goes whose filter finds nothing: without one of its terms, or without a filter. */
  waysOut(page) {
    const each = terms(this.filter);
    const fewer = each.length > 1 ? each.slice(0, 3).map((term) => h("a.button", { key: term, href: href(page, { filter: withoutTerm(this.filter, term) }) }, h("bdi.clip", `Without ${term}`))) : [];
    return [fewer, each.length > 0 && h("a.button", { key: "all", href: href(page) }, page === "dead" ? "All dead letters" : "All jobs"), this.fixed && h("a.button", { key: "jobs", href: href("jobs", { filter: this.filter }) }, "Search all jobs")];
  }

  table() {
    if (this.loading && !this.rows.length) return h("section.panel", skeleton());
    if (this.problem?.kind === "FilterError") return null; // the filter says it
    if (this.problem) return h("section.panel", failure(this.problem, () => this.load()));
    return h("section.panel",
      this.fresh.size > 0 && h("button.newer", { type: "button", onclick: () => this.showFresh() }, `${this.fresh.size >= PAGE ? `${PAGE}+` : this.fresh.size} newer ${this.fresh.size === 1 ? "job matches" : "jobs match"}. Show them `, h("kbd", ".")),
      !this.rows.length ? this.nothing() : h("div.scroll", h("table.cards.jobs",
        h("thead", h("tr", h("th.c-box", h("input", { type: "checkbox", "aria-label": "Choose all that match", checked: this.all, onchange: () => { this.all = !this.all; this.chosen.clear(); this.draw(); } })),
          [["State", "c-state"], ["Type", "c-type"], ["Queue, tenant", "c-queue"], ["Last error, or why it waits", ""]].map(([title, name]) => h("th", { scope: "col", class: name }, title)), h("th.right.c-attempt", { scope: "col" }, "Attempt"), h("th.c-life", { scope: "col" }, "Life"), h("th.right.c-next", { scope: "col" }, "Next, changed"))),
        h("tbody", this.rows.map((job, n) => this.line(job, n))))),
      this.rows.length > 0 && h("footer", `${count(this.rows.length)} shown${this.facets ? ` of ${count(this.facets.count, this.facets.counted)}` : ""}, newest first`, h("span.wide-only", "· line waits, bar runs, dashes back off"),
        h("span.push", { style: { "margin-left": "auto" } }, this.next && h("button.button.slim", { type: "button", onclick: () => this.older() }, icon("right"), "Older"))));
  }

  facetView(bar) {
    const groups = this.facets ? { state: this.facets.states, queue: this.facets.queues, type: this.facets.types, tenant: this.facets.tenants } : {};
    const entry = (field, value, number, shown) => h("button", { key: value, type: "button", "aria-pressed": String(valuesOf(this.filter, field).includes(quote(value))), title: "Alt-click excludes", onclick: (event) => bar.set(event.altKey ? `${this.filter} -${field}:${quote(value)}`.trim() : toggleValue(this.filter, field, quote(value))) }, shown, number !== undefined && h("span.count", count(number, this.facets?.counted)));
    return h("aside.facets", { "aria-label": "Facets" },
      h("div", h("h2", "State"), STATES.map((name) => entry("state", name, groups.state?.[name] ?? (this.facets ? 0 : undefined), state(name)))),
      ["queue", "type", "tenant"].map((field) => groups[field] && Object.keys(groups[field]).length > 0 && h("div", { key: field }, h("h2", field[0].toUpperCase() + field.slice(1)),
        Object.entries(groups[field]).slice(0, 8).map(([value, number]) => entry(field, value, number, h("bdi.clip", value))))));
  }

  bulkBar() {
    if ((!this.all && !this.chosen.size) || !this.allows("operator")) return null;
    const filter = this.all ? this.whole : `id:${[...this.chosen].join(",")}`;
    const verbs = ["retry", "replay", "resume", "cancel", "discard"];
    const states = new Set(this.rows.filter((row) => this.all || this.chosen.has(row.id)).map((row) => row.state));
    const fitting = verbs.filter((verb) => [...states].some((each) => VERBS[each].some(([name]) => name === verb)));
    return h("div.bulkbar", { role: "region", "aria-label": "Chosen jobs" }, h("strong", this.all ? `All that match${this.facets ? `: ${count(this.facets.count, this.facets.counted)}` : ""}` : `${count(this.chosen.size)} chosen`),
      fitting.map((verb) => h("button.button.slim", { key: verb, type: "button", class: verb === "discard" || verb === "cancel" ? "danger" : "", onclick: () => bulkAct(verb, filter, () => this.load()) }, `${verb[0].toUpperCase()}${verb.slice(1)}…`)),
      !this.all && h("button.button.plain.slim", { type: "button", onclick: () => { this.all = true; this.draw(); } }, "Choose all that match"),
      h("button.button.plain.slim", { type: "button", onclick: () => { this.chosen.clear(); this.all = false; this.draw(); } }, "Clear"));
  }
}

export async function open({ params, draw, allows }) {
  const list = new JobList({ filter: params.get("filter") ?? "", draw, allows });
  const bar = new FilterBar({ filter: list.filter, draw, change: (filter) => go(href("jobs", { filter })) });
  await list.load();
  const command = () => `windlass jobs list ${list.filter ? `'${list.filter}'` : ""}`.trim();
  return {
    title: "Jobs",
    keys: list.keys(),
    close: () => list.close(),
    bar: () => allows("operator") && h("button.button", { type: "button", onclick: () => enqueueDialog() }, "Enqueue…"),
    view: () => {
      bar.problem = list.problem?.kind === "FilterError" ? list.problem.message : null;
      return [
        bar.view(h("span.row.quiet.small.nowrap",
          list.facets && `${count(list.facets.count, list.facets.counted)} jobs`, list.took !== null && h("span.wide-only", ` ${Math.round(list.took)} ms`),
          list.filter && h("button.close", { type: "button", "aria-label": "Clear the filter", onclick: () => bar.set("") }, icon("cross")),
          h("button.button.slim.wide-only", { type: "button", onclick: () => copy(location.href, "Link copied") }, "Copy link"),
          h("button.button.slim.wide-only", { type: "button", onclick: () => copy(command(), "Command copied") }, icon("copy"), "Copy as CLI"))),
        h("div.with-facets", list.facetView(bar), h("div.stack", list.table())),
        list.bulkBar(),
      ];
    },
  };
}

