// Queues and phases: what waits, what keeps it, who works on it; gates, limits, tenants.

import { ask, bar, copy, count, dialog, dueCell, empty, get, h, icon, jobHref, jobsOf, many, mark, only, panel, percent, post, REASON, reasonOf, relative, remember, repeat, shortId, span, table } from "../core/kit.js";

const EVERY = 5000;
const PROCESSORS = { idle: ["queued", "queued"], busy: ["running", "running"], error: ["dead", "dead"] };
const OPEN = "open";

/** The rows of the overview that begin with this. */
export const rowsOf = (overview, begin) => [...overview].filter(([key]) => key.startsWith(begin)).map(([, row]) => row);

const ago = (text) => relative(text).replace(" ago", "");
const by = (actor, reason) => `${actor ?? ""}${reason ? `: “${reason}”` : ""}`;

/** The gate of a queue as a mark, and who closed it. */
function gateMark(row, gate) {
	if (row.gate === OPEN) return !row.workers && row.due ? mark("dead", "alert", "no worker") : mark("plain", "check", OPEN, false);
	return [mark("plain", row.gate === "draining" ? "drain" : "pause", `${row.gate}${gate ? ` ${ago(gate.since)}` : ""}`), gate && h("bdi.two", by(gate.actor, gate.reason))];
}

/** Processors as rows: name, state, job, since when. */
export function processorTable(processors, more = () => null) {
	return processors.length > 0 && table(["", "", "", ">"], processors.map((each) => [`${each.worker}${each.name}`,
		[h("bdi", { title: each.name }, each.short ?? each.name), more(each)],
		mark(...PROCESSORS[each.state], each.state, false),
		each.job && h("a.clip", { href: jobHref(each.job) }, h("bdi", each.type ?? shortId(each.job))),
		each.since && each.state !== "idle" && h("span.quiet", ago(each.since))]));
}

function phaseCard(phase, known) {
	const workers = known.filter((worker) => worker.state !== "dead");
	const processors = workers.flatMap((worker) => (worker.processors ?? []).filter((each) => each.phase === phase.phase).map((each) => ({ ...each, worker: worker.name, short: (each.name ?? "").replace(/^.*-(processor-\d+)$/, "$1") })));
	const crowd = processors.length > 20;
	const shown = crowd ? processors.filter((each) => each.state !== "idle").sort((a, b) => (a.since < b.since ? -1 : 1)).slice(0, 10) : processors;
	const { busy = 0, idle = 0, error = 0 } = phase;
	return h("section.panel.phase", { key: `${phase.pipeline}${phase.phase}` },
		h("div.body", h("div.row", h("strong", h("bdi", phase.phase)), phase.queue && h("span.quiet.small.push", "queue ", h("bdi", phase.queue))),
			h("p.small", h("strong", count(phase.due, 10000)), " due · ", h("strong", String(Math.round((phase.per_minute ?? 0) * 10) / 10)), " per min · p95 ", h("strong", span(phase.run_p95)), phase.error_rate > 0 && [" · ", h("span.bad", `${percent(phase.error_rate, 1)} die`)]),
			h("p.small.quiet", `${count(phase.succeeded)} succeeded, ${count(phase.failed)} failed, ${count(phase.dead)} dead · ${count(phase.in_memory)} in memory`),
			h("div.row", bar(busy, busy + idle + error), h("span.small", `${count(busy)} busy, ${count(idle)} idle`, error > 0 && h("span.bad", `, ${error} error`)))),
		crowd && h("div.body.crowd", processors.map((each) => h(`span.${each.state}.s-${PROCESSORS[each.state][0]}`, { key: each.worker + each.name, title: `${each.name} ${each.state}` }))),
		processorTable(shown, (each) => workers.length > 1 && h("bdi.two", each.worker)));
}

async function limitDialog(key) {
	remember({ limit: key });
	const use = await get("limits/use", { key });
	const list = (title, jobs, cell) => h("div", h("h3", `${title} (${count(jobs.length)})`), jobs.length ? table(["", "", ">"], jobs.slice(0, 10).map((job) => [job.id, h("a.name", { href: jobHref(job.id) }, h("bdi", job.type)), h("bdi", job.tenant), h("span.quiet", cell(job))])) : h("p.quiet", "None."));
	await dialog((close) => h("form", { method: "dialog", onclick: (event) => event.target.closest("a") && close() }, h("h2", h("bdi", key)), list("Hold it", use.holders, (job) => job.since && relative(job.since)), list("Wait for it", use.waiters, (job) => relative(job.run_at)), h("div.buttons", h("button.primary", { type: "submit" }, "Close"))), "wide");
	remember({ limit: null });
}

/** How bad a queue is: no worker, a closed gate, a lag. */
const badness = (row) => (!row.workers && row.due ? 3 : row.gate !== OPEN ? 2 : row.lag ? 1 : 0);

export async function open({ params, draw, shared, allows }) {
	let [phases, limits, tenants] = [[], [], []];
	const read = async () => {
		[phases, limits, tenants] = await Promise.all(["phases", "limits", "tenants"].map((name) => get(name).then((answer) => answer[name], () => [])));
		draw();
	};
	await read();
	const stop = repeat(read, EVERY);
	if (params.get("limit")) limitDialog(params.get("limit"));

	const gate = (kind, name) => shared.overview.get(`gate:${kind}:${name}`);
	const pause = (kind, name, text, danger) => ask({ title: `Pause ${name}?`, text: [text], fields: [REASON], button: `Pause ${name}`, danger }, (typed) => post("gates/pause", { kind, ...(kind === "all" ? {} : { name }), ...reasonOf(typed) }).then(() => `${name[0].toUpperCase()}${name.slice(1)} is paused.`));
	const resume = (row) => ask({ title: `Open ${row.queue} again?`, text: ["Its jobs start at once."], button: `Open ${row.queue}` }, () => post("gates/resume", { kind: "queue", name: row.queue }).then(() => `${row.queue} is open.`));
	const openAll = () => ask({ title: "Open everything again?", text: ["What is paused by itself stays so."], button: "Open everything" }, () => post("gates/resume", { kind: "all" }).then(() => "Everything is open."));

	const pipelines = () => {
		const workers = rowsOf(shared.overview, "worker:");
		return [...new Set(phases.map((each) => each.pipeline))].filter(Boolean).map((name) => {
			const own = phases.filter((each) => each.pipeline === name);
			return panel(["Pipeline ", h("bdi", name)], `one job moves through ${own.length} phases`, h("div.body.phases", own.map((phase, n) => [n > 0 && h("span.arrow", { key: `arrow${n}`, "aria-hidden": "true" }, icon("right")), phaseCard(phase, workers)])), { key: `pipeline-${name}` });
		});
	};

	const queueButton = (row) => {
		if (!row.workers && row.due) return h("button.slim.primary", () => copy(`windlass worker app.py --queue ${row.queue}`, "Command copied"), "Copy start");
		if (row.gate === OPEN) return h("button.slim", only(allows, "operator", () => pause("queue", row.queue, "Running jobs finish, new ones are accepted and wait.")), "Pause…");
		return h("button.slim", only(allows, "operator", () => resume(row)), "Open…");
	};
	const queueLine = (row) => [row.queue,
		[h("a.name", { href: jobsOf("queue", row.queue) }, h("bdi", row.queue)), h("span.two", many(row.workers, "worker"))],
		gateMark(row, gate("queue", row.queue)),
		dueCell(row), ...["running", "failed", "dead"].map((name) => count(row[name], row.counted)), span(row.lag), queueButton(row)];
	const queues = () => {
		const rows = rowsOf(shared.overview, "queue:").sort((a, b) => badness(b) - badness(a) || (b.lag ?? 0) - (a.lag ?? 0) || (a.queue < b.queue ? -1 : 1));
		return panel("Queues", rows.length ? "worst first" : null, rows.length ? table(["Queue", "Gate", ">Due", ">Running", ">~Failed", ">~Dead", ">Oldest due", ">"], rows.map(queueLine), "cards") : empty("stack", "No queue has a job yet", ["A queue appears with its first job, or with a worker that serves it."]));
	};

	const limitLine = (row) => {
		const most = row.most ?? row.burst;
		return [row.key,
			[h("button.plain.slim", () => limitDialog(row.key), h("bdi.mono", row.key)), h("span.two", row.period ? `rate, ${most} per ${span(row.period)}` : `limit ${most}`)],
			[bar(row.used, most ?? 1, row.held > 0 ? "failed" : "running"), h("span.two", `${count(row.used)} of ${count(most)}`)],
			h("strong", count(row.waiting)), row.held > 0 ? mark("failed", "hold", `held ${span(row.held)}`) : row.free_in > 0 ? `in ${span(row.free_in)}` : row.used >= most ? "full" : "room"];
	};
	const limitPanel = () => panel("Limits and rates", "who waits, most first", limits.length ? table(["Key", "In use", ">Wait", ">Room"], limits.slice(0, 20).map(limitLine)) : empty("hold", "No limit is in use"));

	const tenantPanel = () => {
		const total = tenants.reduce((sum, row) => sum + row.running, 0);
		return tenants.length > 1 && panel("Tenants", "running now", table(["", "", ">", ">"], tenants.slice(0, 10).map((row) => [row.tenant, [h("a.name", { href: jobsOf("tenant", row.tenant) }, h("bdi", row.tenant)), h("span.two", `weight ${row.weight}`)], bar(row.running, total || 1, "queued"), percent(row.running, total), h("span.quiet", `${count(row.due, row.counted)} due`)])));
	};

	return {
		title: "Queues and phases",
		close: stop,
		bar: () => allows("operator") && ((gate("all", "")?.state ?? OPEN) !== OPEN ? h("button", openAll, "Open everything…") : h("button.wide-only", () => pause("all", "everything", "No job starts until it is opened again. Running jobs finish.", true), "Pause everything…")),
		view: () => [pipelines(), h("div.with-side.wide", queues(), h("div.stack", limitPanel(), tenantPanel()))],
	};
}
