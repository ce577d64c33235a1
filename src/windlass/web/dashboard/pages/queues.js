// Queues and phases: what waits, what keeps it, who works on it; gates, limits, tenants.

import { get, post } from "../core/api.js";
import { bar } from "../core/charts.js";
import { h } from "../core/dom.js";
import { count, percent, relative, span } from "../core/format.js";
import { jobHref } from "../core/jobs.js";
import { repeat } from "../core/live.js";
import { icon, mark } from "../core/marks.js";
import { quote } from "../core/palette.js";
import { href } from "../core/router.js";
import { confirm, copy, dialog, empty, only, panel, say } from "../core/ui.js";

const EVERY = 5000;

/** The gate of a queue as a mark, and who closed it. */
export function gateMark(row, gate) {
  if (row.gate === "open" && !row.workers && (row.queued || row.failed)) return [mark("dead", "alert", "no worker")];
  if (row.gate === "open") return [mark("plain", "check", "open", false)];
  const shape = row.gate === "draining" ? "drain" : "pause";
  return [mark("plain", shape, `${row.gate}${gate ? ` ${relative(gate.since).replace(" ago", "")}` : ""}`), gate && h("bdi.two", `${gate.actor ?? ""}${gate.reason ? `: “${gate.reason}”` : ""}`)];
}

export async function pauseDialog(kind, name, after) {
  const sure = await confirm({ title: `Pause ${name}?`, text: ["Running jobs finish, new ones are accepted and wait."], fields: [{ name: "reason", label: "Reason (shown to all)" }], button: `Pause ${name}` });
  if (!sure) return;
  await post("gates/pause", { kind, name, ...(sure.reason.trim() ? { reason: sure.reason.trim() } : {}) });
  say(`${name} is paused.`);
  after?.();
}

export async function resumeGate(kind, name, after) {
  const sure = await confirm({ title: `Open ${name} again?`, text: ["Its jobs start at once."], button: `Open ${name}` });
  if (!sure) return;
  await post("gates/resume", { kind, name });
  say(`${name} is open.`);
  after?.();
}

function worst(row) {
  if (!row.workers && row.queued + row.failed) return 3;
  if (row.gate !== "open") return 2;
  return (row.lag ?? 0) > 0 ? 1 : 0;
}

/** The rows of the overview that begin with this. */
export const rowsOf = (overview, begin) => [...overview].filter(([key]) => key.startsWith(begin)).map(([, row]) => row);

export function queueRows(shared) {
  return rowsOf(shared.overview, "queue:").sort((a, b) => worst(b) - worst(a) || (b.lag ?? 0) - (a.lag ?? 0) || (a.queue < b.queue ? -1 : 1));
}

function phaseCard(phase, known) {
  const workers = known.filter((worker) => worker.state !== "dead");
  const processors = workers.flatMap((worker) => (worker.processors ?? []).filter((each) => each.phase === phase.phase).map((each) => ({ ...each, worker: worker.name })));
  const many = processors.length > 20;
  const shown = many ? processors.filter((each) => each.state !== "idle").sort((a, b) => (a.since < b.since ? -1 : 1)).slice(0, 10) : processors;
  const tone = { idle: "queued", busy: "running", error: "dead" };
  return h("section.panel.phase", { key: `${phase.pipeline}${phase.phase}` },
    h("div.body", h("div.row", h("strong", h("bdi", phase.phase)), phase.queue && h("span.quiet.small", { style: { "margin-left": "auto" } }, "queue ", h("bdi", phase.queue))),
      h("p.small", h("strong", count(phase.due, 10000)), " due · ", h("strong", String(Math.round((phase.per_minute ?? 0) * 10) / 10)), " per min · p95 ", h("strong", span(phase.run_p95)), phase.error_rate ? [" · ", h("span.bad", `${percent(phase.error_rate, 1)} die`)] : ""),
      h("p.small.quiet", `${count(phase.succeeded)} succeeded, ${count(phase.failed)} failed, ${count(phase.dead)} dead · ${count(phase.in_memory)} in memory`),
      h("div.row", bar(phase.busy ?? 0, (phase.busy ?? 0) + (phase.idle ?? 0) + (phase.error ?? 0)), h("span.small", `${count(phase.busy ?? 0)} busy, ${count(phase.idle ?? 0)} idle`, phase.error ? h("span.bad", `, ${phase.error} error`) : ""))),
    many && h("div.body.row.wrap", { style: { gap: "3px" } }, processors.map((each) => h(`span.s-${tone[each.state]}`, { key: each.worker + each.name, title: `${each.name} ${each.state}`, style: { width: "12px", height: "12px", "border-radius": "3px", background: each.state === "idle" ? "var(--sunken)" : "var(--fill)" } }))),
    shown.length > 0 && h("table", h("tbody", shown.map((each) => h("tr", { key: each.worker + each.name },
      h("td", { title: `${each.name} on ${each.worker}` }, (each.name ?? "").replace(/^.*-(processor-\d+)$/, "$1"), workers.length > 1 && h("bdi.two", each.worker)),
      h("td", mark(tone[each.state], { idle: "queued", busy: "running", error: "dead" }[each.state], each.state, false)),
      h("td.clip", each.job ? h("a", { href: jobHref(each.job) }, h("bdi", each.type ?? each.job.slice(-8))) : ""),
      h("td.right.quiet", each.since && each.state !== "idle" ? relative(each.since).replace(" ago", "") : ""))))));
}

async function limitDialog(key) {
  const use = await get("limits/use", { key });
  const list = (title, jobs, cell) => h("div", h("h3", `${title} (${count(jobs.length)})`), jobs.length ? h("table", h("tbody", jobs.slice(0, 10).map((job) => h("tr", { key: job.id }, h("td", h("a.name", { href: jobHref(job.id) }, h("bdi", job.type))), h("td", h("bdi", job.tenant)), h("td.right.quiet", cell(job)))))) : h("p.quiet", "None."));
  await dialog((close) => h("form", { method: "dialog", onclick: (event) => event.target.closest("a") && close() }, h("h2", h("bdi", key)), list("Hold it", use.holders, (job) => (job.since ? relative(job.since) : "")), list("Wait for it", use.waiters, (job) => relative(job.run_at)), h("div.buttons", h("button.button.primary", { type: "submit" }, "Close"))), { wide: true });
}

export async function open({ draw, shared, allows }) {
  let phases = [];
  let limits = [];
  let tenants = [];
  const read = async () => {
    const [phased, limited, lent] = await Promise.all([get("phases").catch(() => ({ phases: [] })), get("limits").catch(() => ({ limits: [] })), get("tenants").catch(() => ({ tenants: [] }))]);
    phases = phased.phases;
    limits = limited.limits;
    tenants = lent.tenants;
    draw();
  };
  await read();
  const stop = repeat(read, EVERY);
  const gates = () => new Map([...shared.overview].filter(([key]) => key.startsWith("gate:queue:")).map(([key, row]) => [key.slice(11), row]));

  const pipelines = () => {
    const workers = rowsOf(shared.overview, "worker:");
    const groups = Map.groupBy ? Map.groupBy(phases, (each) => each.pipeline ?? "") : phases.reduce((map, each) => map.set(each.pipeline ?? "", [...(map.get(each.pipeline ?? "") ?? []), each]), new Map());
    return [...groups].filter(([name]) => name).map(([name, each]) => panel(["Pipeline ", h("bdi", name)], `one job moves through ${each.length} phases`, h("div.body.phases", each.map((phase, n) => [n > 0 && h("span.arrow", { key: `arrow${n}`, "aria-hidden": "true" }, icon("right")), phaseCard(phase, workers)])), { key: `pipeline-${name}` }));
  };

  const queues = () => {
    const rows = queueRows(shared);
    const marks = gates();
    if (!rows.length) return panel("Queues", null, empty("stack", "No queue has a job yet", ["A queue appears with its first job."]));
    return panel("Queues", "worst first", h("div.scroll", h("table",
      h("thead", h("tr", ["Queue", "Gate"].map((title) => h("th", { scope: "col" }, title)), ["Due", "Running", "Failed", "Dead", "Oldest due"].map((title, n) => h("th.right", { scope: "col", class: n === 2 || n === 3 ? "wide-only" : "" }, title)), h("th"))),
      h("tbody", rows.map((row) => h("tr.hoverable", { key: row.queue },
        h("td", h("a.name", { href: href("jobs", { filter: `queue:${quote(row.queue)}` }) }, h("bdi", row.queue)), h("span.two", `${count(row.workers)} ${row.workers === 1 ? "worker" : "workers"}`)),
        h("td", gateMark(row, marks.get(row.queue))),
        h("td.right.strong", count(row.queued, row.counted)), h("td.right", count(row.running, row.counted)), h("td.right.wide-only", count(row.failed, row.counted)), h("td.right.wide-only", count(row.dead, row.counted)), h("td.right", row.lag ? span(row.lag) : "—"),
        h("td.right", !row.workers && row.queued ? h("button.button.slim.primary", { type: "button", onclick: () => copy(`windlass worker app.py --queue ${row.queue}`, "Command copied") }, "Copy start")
          : row.gate === "open" ? h("button.button.slim", { type: "button", ...only(allows, "operator"), onclick: () => pauseDialog("queue", row.queue) }, "Pause…")
            : h("button.button.slim", { type: "button", ...only(allows, "operator"), onclick: () => resumeGate("queue", row.queue) }, "Open…"))))))));
  };

  const limitPanel = () => panel("Limits and rates", "who waits, most first", limits.length ? h("table", h("thead", h("tr", h("th", "Key"), h("th", "In use"), h("th.right", "Wait"), h("th.right", "Room"))),
    h("tbody", limits.slice(0, 20).map((row) => h("tr.hoverable", { key: row.key },
      h("td", h("button.button.plain.slim", { type: "button", onclick: () => limitDialog(row.key) }, h("bdi.mono", row.key)), h("span.two", row.period ? `rate, ${row.most ?? row.burst} per ${span(row.period)}` : `limit ${row.most}`)),
      h("td", bar(row.used, row.most ?? row.burst ?? 1, row.held > 0 ? "failed" : "running"), h("span.two", `${count(row.used)} of ${count(row.most ?? row.burst)}`)),
      h("td.right.strong", count(row.waiting)), h("td.right", row.held > 0 ? mark("failed", "hold", `held ${span(row.held)}`) : row.free_in > 0 ? `in ${span(row.free_in)}` : row.used >= (row.most ?? row.burst) ? "full" : "room"))))) : empty("hold", "No limit is in use"));

  const tenantPanel = () => {
    const total = tenants.reduce((sum, row) => sum + row.running, 0);
    return tenants.length > 1 && panel("Tenants", "running now", h("table", h("tbody", tenants.slice(0, 10).map((row) => h("tr", { key: row.tenant }, h("td", h("a.name", { href: href("jobs", { filter: `tenant:${quote(row.tenant)}` }) }, h("bdi", row.tenant)), h("span.two", `weight ${row.weight}`)), h("td", bar(row.running, total || 1, "queued")), h("td.right", percent(row.running, total)), h("td.right.quiet", `${count(row.queued, row.counted)} due`))))));
  };

  return {
    title: "Queues and phases",
    close: stop,
    bar: () => allows("operator") && (shared.overview.get("gate:all:")?.state && shared.overview.get("gate:all:").state !== "open"
      ? h("button.button", { type: "button", onclick: async () => { await post("gates/resume", { kind: "all" }); say("Everything is open."); } }, "Open everything…")
      : h("button.button.wide-only", { type: "button", onclick: async () => { const sure = await confirm({ title: "Pause everything?", text: ["No job starts until it is opened again. Running jobs finish."], fields: [{ name: "reason", label: "Reason (shown to all)" }], button: "Pause everything", danger: true }); if (sure) { await post("gates/pause", { kind: "all", ...(sure.reason.trim() ? { reason: sure.reason.trim() } : {}) }); say("Everything is paused."); } } }, "Pause everything…")),
    view: () => [pipelines(), h("div.with-side.wide", queues(), h("div.stack", limitPanel(), tenantPanel()))],
  };
}
